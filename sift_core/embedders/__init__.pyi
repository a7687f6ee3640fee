from sift_core.embedders.onnx import OnnxEmbedder as OnnxEmbedder
from sift_core.embedders.sentence_transformer import (
    SentenceTransformerEmbedder as SentenceTransformerEmbedder,
)
