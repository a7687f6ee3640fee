from sift_core.evaluation.diagnosis import Diagnosis as Diagnosis
from sift_core.evaluation.diagnosis import diagnose as diagnose
from sift_core.evaluation.figure import save_figure as save_figure
from sift_core.evaluation.questions import Question as Question
from sift_core.evaluation.questions import QuestionSet as QuestionSet
from sift_core.evaluation.questions import read_questions as read_questions
from sift_core.evaluation.verdict import as_record as as_record
from sift_core.evaluation.verdict import recommend as recommend
