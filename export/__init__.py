"""Models of Parnas for other libraries and programs."""
