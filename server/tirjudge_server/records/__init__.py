"""Records of judgments. A record is stored before the response is sent, chained by hashes, and erasable field by field."""
