// The threads that step the parts of one network. They meet after as many cycles as a link takes,
// so no flit is read before it is written; between two runs they sleep. Used by
// fabric/router.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace fabric {

class Crew {
 public:
  // `work` of part 0 runs on the caller's thread, of parts 1 ... parts - 1 on one thread each. It
  // must call meet() equally often in all parts.
  Crew(int parts, std::function<void(int part)> work);
  ~Crew();
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  // Work of every part, once; what each has written is seen by the caller afterwards.
  void run();
  // Waits for all parts: spins, as a meeting is shorter than going to sleep, but sleeps when a part
  // is late.
  void meet();

 private:
  void serve(int part);

  const std::uint32_t parts_;
  const int spins_;
  const std::function<void(int part)> work_;
  std::atomic<std::uint32_t> round_ = 0;  // runs begun
  bool ends_ = false;                     // written before round_
  alignas(64) std::atomic<std::uint32_t> here_ = 0;
  alignas(64) std::atomic<std::uint32_t> meetings_ = 0;  // that have ended
  std::vector<std::thread> threads_;
};

}  // namespace fabric
