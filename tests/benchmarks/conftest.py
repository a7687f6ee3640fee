from importlib.util import find_spec

if find_spec("torch") is None or find_spec("pandas") is None:
    collect_ignore = ["test_gpu.py", "test_language_modeling.py"]
