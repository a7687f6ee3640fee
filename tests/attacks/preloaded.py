"""Imported once by the process from which all attempts are forked."""

import threading

import faiss
import peft  # noqa: F401
import qdrant_client  # noqa: F401
import sentence_transformers  # noqa: F401
import tqdm

import sift_core.answering.engine
import sift_core.cli.application
import sift_core.cli.doctor
import sift_core.cli.index
import sift_core.cli.search
import sift_core.documents.html
import sift_core.evaluation.embedding_cache
import sift_core.sources  # noqa: F401

faiss.omp_set_num_threads(1)
tqdm.tqdm.set_lock(threading.RLock())  # its own semaphores would outlive those who are killed
