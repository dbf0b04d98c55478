"""Vectors of turns under one model, searched by FAISS."""
