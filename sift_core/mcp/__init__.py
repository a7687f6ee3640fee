"""`sift mcp`: a store as tools of an agent, over the Model Context Protocol."""
