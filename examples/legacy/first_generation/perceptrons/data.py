import numpy as np


def load_words(path):
    """a word and its language on each line"""
    pairs = [line.split() for line in path.read_text().splitlines()]
    languages = sorted({language for _, language in pairs})
    return [word for word, _ in pairs], np.array([languages.index(name) for _, name in pairs])


def count_ngrams(words, sizes):
    grams = [[w[i : i + n] for n in sizes for i in range(len(w) - n + 1)] for w in words]
    vocab = {gram: i for i, gram in enumerate(sorted({g for gs in grams for g in gs}))}
    x = np.zeros((len(words), len(vocab)))
    for row, gs in enumerate(grams):
        for gram in gs:
            x[row, vocab[gram]] += 1
    return x
