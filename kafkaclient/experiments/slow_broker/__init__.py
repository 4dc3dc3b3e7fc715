"""KIP-794's experiment: one of several brokers answers late; who notices, and how soon?"""
