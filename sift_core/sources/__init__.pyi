from sift_core.sources.combined import CombinedSource as CombinedSource
from sift_core.sources.content_ids import content_id as content_id
from sift_core.sources.faiss.index import FaissSource as FaissSource
from sift_core.sources.in_memory import InMemorySource as InMemorySource
from sift_core.sources.oversampling import OversamplingSource as OversamplingSource
from sift_core.sources.qdrant.source import QdrantSource as QdrantSource
