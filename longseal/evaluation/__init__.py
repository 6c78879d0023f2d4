"""Run, score, keep."""

from longseal.evaluation.evaluate import evaluate
from longseal.evaluation.results import Accuracy, Case, Evaluation, case_from

__all__ = ["Accuracy", "Case", "Evaluation", "case_from", "evaluate"]
