"""Add time indexes to directories without them: `survey`, `plan`, `apply`.

Imported as ``kafkastore.migration``.
"""

from kafkastore.migration.answers import (
    AnswersSummary,
    MigrationAnswers,
    PartitionMigrationAnswers,
    SampleAnswer,
    answers,
    partition_answers,
)
from kafkastore.migration.convert import (
    UNTIMED,
    ConvertPlan,
    UnconvertedSegment,
    Untimed,
    plan_convert,
)
from kafkastore.migration.plan import (
    ENTRY_OFFSETS,
    MODES,
    READING_MODES,
    LeftSegment,
    NotReadError,
    left_segments,
    mtime_entry,
    plan,
)
from kafkastore.migration.restore import RestorePlan, plan_restore
from kafkastore.migration.segment_survey import SegmentSurvey, survey_segment
from kafkastore.migration.survey import PartitionSurvey, Survey, survey, survey_partition
from kafkastore.migration.warnings import SurveyWarning

__all__ = [
    "ENTRY_OFFSETS",
    "MODES",
    "READING_MODES",
    "UNTIMED",
    "AnswersSummary",
    "ConvertPlan",
    "LeftSegment",
    "MigrationAnswers",
    "NotReadError",
    "PartitionMigrationAnswers",
    "PartitionSurvey",
    "RestorePlan",
    "SampleAnswer",
    "SegmentSurvey",
    "Survey",
    "SurveyWarning",
    "UnconvertedSegment",
    "Untimed",
    "answers",
    "left_segments",
    "mtime_entry",
    "partition_answers",
    "plan",
    "plan_convert",
    "plan_restore",
    "survey",
    "survey_partition",
    "survey_segment",
]
