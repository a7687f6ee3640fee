from sift_core.evaluation.diagnosis import Diagnosis as Diagnosis
from sift_core.evaluation.diagnosis import diagnose as diagnose
from sift_core.evaluation.questions import read_questions as read_questions
from sift_core.evaluation.verdict import recommend as recommend
