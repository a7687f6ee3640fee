from sift_core.documents.chunker import Chunker as Chunker
from sift_core.documents.finding import FoundFiles as FoundFiles
from sift_core.documents.finding import find_files as find_files
from sift_core.documents.indexing import index_documents as index_documents
from sift_core.documents.reader import read_files as read_files
from sift_core.documents.reader import read_found as read_found
