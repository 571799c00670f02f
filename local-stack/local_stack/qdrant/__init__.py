"""Can an unmodified Qdrant client talk to Qdrant's engine without a Qdrant server? A REST process around the engine.

It speaks the part of Qdrant's REST API that is mapped here and refuses everything else with 501: an answer that
silently ignores a condition would be a wrong answer.
"""
