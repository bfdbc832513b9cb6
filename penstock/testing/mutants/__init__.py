"""Wrong rules, one line each, and the test or seed that notices each: do the tests see what they should?"""
