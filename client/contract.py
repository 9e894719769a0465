"""Which of the two contracts an entry file follows, found by parsing it and never by importing it.

**function**: Ludwig imports the file and calls its `main(param2val)`.
**script**: Ludwig runs the file, which reads its chunk of parameters by itself.

The rule. A comment line `# ludwig: script` or `# ludwig: function` decides. Else it is a function
if the file's top level has a `main` that can be called with exactly one argument and needs it, and
nothing says that the file is meant to be run:
 - the chunk is mentioned: `param2val_chunk` or `LUDWIG_CHUNK` anywhere; or, in the code that runs
   (the top level, `if __name__ == "__main__":`), any name with "chunk" in it, or `pickle`;
 - `main` is called at the top level outside of `if __name__ == "__main__":` (importing runs it);
 - `main` takes the command line: its argument is called `argv` or `args`, or is made from
   `sys.argv`, and the file calls it.
A `main` whose arguments cannot be seen (imported, assigned) counts if the file calls nothing else,
for then running it would do nothing. `if __name__ == "__main__": main({"lr": 0.1})`, to try things
out at home, does not make a file a script: one that never looks at its chunk could not use it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from ludwig.errors import UsageError
from ludwig.model import Contract

__all__ = ["contract_of"]

_MARK = re.compile(r"^[ \t]*#[ \t]*ludwig:[ \t]*(script|function)[ \t]*$", re.MULTILINE)
_CHUNK = re.compile(r"param2val_chunk|LUDWIG_CHUNK")
_COMMAND_LINE = ("argv", "args", "cli_args", "arguments")


def contract_of(entry_text: str, *, name: str = "run.py") -> Contract:
    """The contract of an entry file. `UsageError` with the line if it is not valid Python."""
    entry_text = entry_text.removeprefix("\ufeff")
    try:
        module = ast.parse(entry_text, filename=name)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = f" line {error.lineno}" if isinstance(error, SyntaxError) else ""
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        raise UsageError(f"{name}{line}: not valid Python: {reason}.") from error
    if mark := _MARK.search(entry_text):
        return "script" if mark[1] == "script" else "function"
    main = _main(module.body)
    if main is None or _mentions(ast.walk(module), _CHUNK):
        return "script"
    guarded, unguarded = _code_that_runs(module.body)
    runs = [*_nodes(guarded), *_nodes(unguarded)]
    if _mentions(runs, re.compile(r"(?i)chunk|^pickle$")) or _calls_main(_nodes(unguarded)):
        return "script"
    if isinstance(main, ast.FunctionDef):
        if not _takes_exactly_one(main.args):
            return "script"
        return "script" if _takes_command_line(main.args, runs) else "function"
    return "script" if any(isinstance(node, ast.Call) for node in runs) else "function"


def _main(body: Sequence[ast.stmt]) -> ast.stmt | None:
    """The statement that gives `main` its last meaning at the top level."""
    found: ast.stmt | None = None
    for statement in body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            if statement.name == "main":
                # A coroutine or a class is no function that Ludwig could call.
                found = statement if isinstance(statement, ast.FunctionDef) else None
        elif isinstance(statement, (ast.Import, ast.ImportFrom)):
            if any((alias.asname or alias.name) == "main" for alias in statement.names):
                found = statement
        elif isinstance(statement, ast.Assign):
            if any(isinstance(to, ast.Name) and to.id == "main" for to in statement.targets):
                found = statement
        elif not _is_guard(statement):
            for inner in _inner_bodies(statement):
                found = _main(inner) or found
    return found


def _inner_bodies(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    """What is still the top level: the branches of if, try and with."""
    if isinstance(statement, (ast.If, ast.Try)):
        yield statement.body
        yield statement.orelse
    if isinstance(statement, ast.Try):
        for handler in statement.handlers:
            yield handler.body
        yield statement.finalbody
    if isinstance(statement, ast.With):
        yield statement.body


def _is_guard(statement: ast.stmt) -> bool:
    """`if __name__ == "__main__":`, in either order, also with `and`."""
    if not isinstance(statement, ast.If):
        return False
    nodes = list(ast.walk(statement.test))
    return any(isinstance(node, ast.Name) and node.id == "__name__" for node in nodes) and any(
        isinstance(node, ast.Constant) and node.value == "__main__" for node in nodes
    )


def _code_that_runs(body: Sequence[ast.stmt]) -> tuple[list[ast.stmt], list[ast.stmt]]:
    """(under the guard, outside of it): what happens when the file is run, definitions aside."""
    guarded: list[ast.stmt] = []
    unguarded: list[ast.stmt] = []
    for statement in body:
        if isinstance(statement, ast.If) and _is_guard(statement):
            guarded += statement.body
        elif not isinstance(
            statement,
            (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom),
        ):
            unguarded.append(statement)
    return guarded, unguarded


def _nodes(statements: Sequence[ast.stmt]) -> Iterator[ast.AST]:
    for statement in statements:
        yield from ast.walk(statement)


def _mentions(nodes: Sequence[ast.AST] | Iterator[ast.AST], pattern: re.Pattern[str]) -> bool:
    for node in nodes:
        texts: list[object] = []
        if isinstance(node, ast.Name):
            texts = [node.id]
        elif isinstance(node, ast.Attribute):
            texts = [node.attr]
        elif isinstance(node, ast.Constant):
            texts = [node.value]
        elif isinstance(node, ast.alias):
            texts = [node.name, node.asname]
        if any(isinstance(text, str) and pattern.search(text) for text in texts):
            return True
    return False


def _calls_main(nodes: Iterator[ast.AST]) -> bool:
    return any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "main"
        for node in nodes
    )


def _takes_exactly_one(arguments: ast.arguments) -> bool:
    """Callable as `main(param2val)`, and not as `main()`."""
    positional = [*arguments.posonlyargs, *arguments.args]
    required = len(positional) - len(arguments.defaults)
    keyword_required = any(default is None for default in arguments.kw_defaults)
    return required == 1 and not keyword_required


def _takes_command_line(arguments: ast.arguments, runs: Sequence[ast.AST]) -> bool:
    if not _calls_main(iter(runs)):
        return False
    first = [*arguments.posonlyargs, *arguments.args][0].arg
    return first in _COMMAND_LINE or _mentions(runs, re.compile("^argv$"))
