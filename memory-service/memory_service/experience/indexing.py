"""Which text is a lesson found by?  One answer for the vector index and the keyword index.  Pure."""

from memory_service.domain import Experience
from memory_service.experience.lessons import lesson_text
from memory_service.stores.postgres.experiences import ExperienceTerms
from memory_service.terms import keyword_terms, tsvector_literal
from memory_service.vocabulary import Vocabulary
from memory_service.write.indexing import TSVECTOR_BYTES_MAX, keyword_prefix


def text_of_lesson(experience: Experience) -> str:
    return lesson_text(experience.action, experience.avoid or "", experience.rationale or "", experience.conditions)


def lesson_passage(experience: Experience, vocabulary: Vocabulary) -> str:
    """The text that is cut into chunks and embedded."""
    return vocabulary.normalise(text_of_lesson(experience))


def lesson_terms(experience: Experience, vocabulary: Vocabulary) -> ExperienceTerms:
    """What Postgres stores about the text of this lesson."""
    terms = keyword_terms("\n".join((text_of_lesson(experience), *experience.tags)), vocabulary)
    prefix = keyword_prefix(experience.tenant, experience.user_id)
    return ExperienceTerms(tsvector_literal(terms, prefix, TSVECTOR_BYTES_MAX), len(terms))
