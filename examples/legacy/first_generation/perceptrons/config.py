from pathlib import Path


class RemoteDirs:
    root = Path('/media/research_data') / 'Perceptrons'
    runs = root / 'runs'
    corpora = root / 'corpora'


class LocalDirs:
    root = Path(__file__).parent.parent
    src = root / 'perceptrons'
    runs = root / '{}_runs'.format(src.name)
