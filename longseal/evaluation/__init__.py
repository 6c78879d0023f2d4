"""Run, score, keep, compare."""

from longseal.evaluation.compare import Comparison, against_base, compare
from longseal.evaluation.evaluate import evaluate, evaluate_variants
from longseal.evaluation.results import Accuracy, Case, Evaluation, case_from

__all__ = [
    "Accuracy",
    "Case",
    "Comparison",
    "Evaluation",
    "against_base",
    "case_from",
    "compare",
    "evaluate",
    "evaluate_variants",
]
