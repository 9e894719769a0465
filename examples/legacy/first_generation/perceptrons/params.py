from collections import namedtuple


class Params:
    learning_rate = [0.1, 1.0]
    ngrams = [[1], [1, 2]]  # letters, or letters and pairs of them
    num_epochs = [8]
    corpus = ['words']
    _not_a_parameter = 'skipped'


def make_params(param2val):
    return namedtuple('Params', param2val.keys())(**param2val)
