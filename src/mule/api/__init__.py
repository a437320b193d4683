"""What Python programs and commands call: a trained run becomes a model, and a model watches, predicts and learns."""
