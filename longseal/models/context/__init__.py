"""Past the window without training: static NTK, linear, dynamic, YaRN and Self-Extend."""
