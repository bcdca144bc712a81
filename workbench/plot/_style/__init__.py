"""What every figure shares: colours, words, bars, lanes and sampling."""
