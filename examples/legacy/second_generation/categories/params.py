"""
use only tuples, not lists, inside of the lists of requested values
"""

param2requests = {
    'hidden_sizes': [(4,), (8, 8)],
    'learning_rate': [0.5],
}

param2default = {
    'hidden_sizes': (8,),
    'learning_rate': 0.1,
    'schedule': ((0, 1.0), (20, 0.5)),  # from which epoch on the rate is multiplied by what
    'num_epochs': 30,
    'noise': None,
    'init': {'scale': 0.5, 'bias': 0},
    'corpus': 'contexts',
}

param2debug = {
    'num_epochs': 2,
    'hidden_sizes': (2,),
}
