"""Speed and memory against other tools, measured in one run on one machine."""
