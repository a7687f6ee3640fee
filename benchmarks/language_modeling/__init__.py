"""The paper's experiment: bits per byte of prompts after reading or learning chosen chunks."""
