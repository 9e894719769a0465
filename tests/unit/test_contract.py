"""Script or function: many spellings of an entry file."""

import textwrap

import pytest

from ludwig.client.contract import contract_of
from ludwig.errors import UsageError

SEED = """
    from pathlib import Path
    import pickle
    from your_module import neural_net_job

    hostname = 'your_hostname'
    p = Path('/media/research_data/p') / '{}_param2val_chunk.pkl'.format(hostname)
    with p.open('rb') as f:
        param2val_chunk = pickle.load(f)
    for param2val in param2val_chunk:
        neural_net_job(param2val)
"""

SCRIPTS = {
    "the seed": SEED,
    "empty": "",
    "a plain script": "print('hello')",
    "main without arguments": """
        def main():
            train()
        if __name__ == "__main__":
            main()
    """,
    "main without arguments, called at once": "def main(): pass\nmain()",
    "main with defaults only": "def main(param2val=None): pass",
    "main with two": "def main(param2val, device): pass",
    "main with a required keyword": "def main(param2val, *, device): pass",
    "main of the seed": """
        def main(param2val):
            train(param2val)
        if __name__ == '__main__':
            p = root / '{}_param2val_chunk.pkl'.format(socket.gethostname())
            for param2val in pickle.load(p.open('rb')):
                main(param2val)
    """,
    "the chunk's name in a constant": """
        NAME = f"{hostname}_param2val_chunk.pkl"
        def main(param2val): pass
        def run():
            for p in load(NAME): main(p)
        if __name__ == "__main__": run()
    """,
    "the chunk from the environment": """
        import os
        def main(param2val): pass
        if __name__ == "__main__":
            for p in read(os.environ["LUDWIG_CHUNK"]): main(p)
    """,
    "the chunk from a helper": """
        from lab import load_chunk
        def main(param2val): pass
        if __name__ == "__main__":
            for p in load_chunk(): main(p)
    """,
    "a pickle that is not called chunk": """
        import pickle
        def main(param2val): pass
        if __name__ == "__main__":
            for p in pickle.load(open(where, "rb")): main(p)
    """,
    "called on import": "def main(param2val): pass\nmain({'lr': 1})",
    "called on import in a loop": "def main(p): pass\nfor p in params(): main(p)",
    "argv": """
        import sys
        def main(argv): pass
        if __name__ == "__main__":
            sys.exit(main(sys.argv))
    """,
    "argparse": """
        def main(args): pass
        if __name__ == "__main__":
            main(parser.parse_args())
    """,
    "the command line under another name": """
        import sys
        def main(params): pass
        if "__main__" == __name__: main(sys.argv[1:])
    """,
    "a coroutine": "async def main(param2val): pass",
    "a class": "class main:\n    def __init__(self, param2val): pass",
    "a method": "class Job:\n    def main(self): pass",
    "a nested function": "def outer():\n    def main(param2val): pass",
    "defined only when run": "if __name__ == '__main__':\n    def main(param2val): pass",
    "replaced later": "def main(param2val): pass\ndef main(): pass",
    "imported and run": "from job import main\nif __name__ == '__main__':\n    main()",
    "said so": "# ludwig: script\ndef main(param2val): pass",
}

FUNCTIONS = {
    "the plain one": "def main(param2val): pass",
    "another name": "def main(params): pass",
    "typed": "def main(param2val: dict[str, object]) -> list: return []",
    "position only": "def main(param2val, /): pass",
    "optional ones after it": "def main(param2val, debug=False, *, device=None): pass",
    "any others": "def main(param2val, *args, **kwargs): pass",
    "decorated": "@torch.no_grad()\ndef main(param2val): pass",
    "with things set up": """
        import torch
        torch.manual_seed(1)
        CONFIG = load_config()
        def main(param2val): pass
    """,
    "tried out at home": """
        def main(param2val): pass
        if __name__ == "__main__":
            main({"lr": 0.1})
    """,
    "tried out with the defaults": """
        from src.params import param2default
        def main(param2val): pass
        if __name__ == "__main__":
            print(main(dict(param2default)))
    """,
    "tried out with options": """
        import argparse
        def main(param2val): pass
        if __name__ == "__main__":
            parser = argparse.ArgumentParser()
            main(vars(parser.parse_args()))
    """,
    "args, but nobody calls it": "def main(args): pass",
    "chunks of something else": """
        def main(param2val):
            for chunk in corpus.chunks(): pickle.dump(chunk, f)
    """,
    "in a try": """
        try:
            import torch
            def main(param2val): pass
        except ImportError:
            pass
    """,
    "imported": "from src.job import main",
    "imported under this name": "from src.job import train as main\n__all__ = ['main']",
    "assigned": "from src.job import train\nmain = train",
    "replaced later": "def main(): pass\ndef main(param2val): pass",
    "said so": """
        # ludwig: function
        import pickle
        def main(param2val): pass
        if __name__ == "__main__":
            main(pickle.load(open("one_param2val_chunk.pkl", "rb"))[0])
    """,
    "with a byte order mark": "\ufeffdef main(param2val): pass",
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts(name: str) -> None:
    assert contract_of(textwrap.dedent(SCRIPTS[name])) == "script"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    assert contract_of(textwrap.dedent(FUNCTIONS[name])) == "function"


def test_what_is_no_python_is_named_with_its_line() -> None:
    with pytest.raises(UsageError, match=r"run\.py line 2: not valid Python"):
        contract_of("x = 1\nprint 'hello'")
    with pytest.raises(UsageError, match=r"src/job\.py"):
        contract_of("def", name="src/job.py")
    with pytest.raises(UsageError, match="not valid Python"):
        contract_of("x = '\0'")


def test_nothing_is_run() -> None:
    assert contract_of("raise SystemExit(1)\ndef main(param2val): pass") == "function"
