"""Run, score, keep, compare."""

from longseal.evaluation.compare import Comparison, compare
from longseal.evaluation.evaluate import evaluate
from longseal.evaluation.results import Accuracy, Case, Evaluation, case_from

__all__ = ["Accuracy", "Case", "Comparison", "Evaluation", "case_from", "compare", "evaluate"]
