"""From files and folders to documents: what is read, how, and what was left out and why."""

from sift_core.reading.finding import FoundFile, FoundFiles, find_files
from sift_core.reading.reader import FileReading, read_file, read_files, read_found
from sift_core.reading.skipped import SkippedPath, SkipReason

__all__ = [
    "FileReading",
    "FoundFile",
    "FoundFiles",
    "SkipReason",
    "SkippedPath",
    "find_files",
    "read_file",
    "read_files",
    "read_found",
]
