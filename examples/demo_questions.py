"""Twenty questions about models that read images, each of two parts.

Written down before any of them was asked.
"""

QUESTIONS = (
    "What is stochastic depth (drop path), and how are relative position bias and window "
    "partition computed?",
    "How are images cut into patches and embedded, and how are position encodings interpolated "
    "for larger images?",
    "How does rotary position embedding work, and how are key and value heads repeated?",
    "How are image features merged into the text embeddings, and what is checked about "
    "placeholder tokens?",
    "How does DETR match predictions with targets, and which losses does it compute?",
    "What is deformable attention, and how are its reference points made?",
    "How does CLIP compute its contrastive loss, and what does its text projection do?",
    "How does SAM predict masks from prompts, and how are points and boxes encoded?",
    "How is a feature pyramid built, and how are features fused to estimate depth?",
    "What does the pooler return, and how is an image classified from the class token?",
    "How are masked patches reconstructed in pretraining, and what is the loss?",
    "How are video frames made into tubelets, and how is attention over time computed?",
    "How does the Q-Former query the image encoder, and how does its output reach the language "
    "model?",
    "What is squeeze-and-excitation, and what is an inverted residual block?",
    "How is the causal mask made, and how is the cache used when text is generated?",
    "How are tokens routed to experts, and how is the load balancing loss computed?",
    "What is layer scale, and how does RMS norm differ from layer norm?",
    "How are bounding boxes of words embedded, and how are visual tokens added to the text?",
    "How are keypoints detected in an image, and how are they matched between two images?",
    "How is the loss of semantic segmentation computed, and how are logits resized to the image?",
)
