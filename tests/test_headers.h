// What most tests include, themselves or by what they test; compiled once for all (meson.build).
// Files name what they use none the less: other compilers have nothing of this.
#pragma once

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <expected>
#include <functional>
#include <map>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>
