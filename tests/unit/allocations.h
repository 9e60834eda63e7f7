// How often this process has asked for memory: allocations.cc counts in every operator new. For
// tests that demand that a hot path asks for none.
#pragma once

namespace test {

long allocations();

}  // namespace test
