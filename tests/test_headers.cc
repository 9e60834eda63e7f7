// Nothing: that test_headers.h is precompiled as tests are is all that this program is for.
