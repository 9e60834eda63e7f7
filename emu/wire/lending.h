// Payloads of trains that stay where their sender's HCA sees its program's memory until the
// receiver copies them: once instead of twice. Only where whoever touches the packet runs by one
// thread of one process (flitnetd), which is why this table lies in no shared memory: a buffer
// cannot claim to have its payload elsewhere. The sender copies what is lent back into its buffers
// ("home") before the memory may change or go; so does whoever hands a buffer to somebody outside.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace emu {

// Buffers are named as in RxDesc (emu/wire/shm_layout.h): pool << 16 | first slot of a train.
class Lending {
 public:
  // The owner of this pool lends, and reads what others have lent, until it is closed.
  void open(std::uint16_t pool, std::size_t slots);
  void close(std::uint16_t pool);  // brings home all that it lent
  bool is_open(std::uint16_t pool) const {
    return pool < pools_.size() && !pools_[pool].trains.empty();
  }
  // The pool is open. The payload of this train lies in `payload`, which is readable until brought
  // home; `home` is where it would lie in the buffer.
  void lend(std::uint32_t buffer, std::span<const std::uint8_t> payload, std::uint8_t* home);
  // Empty: it lies in the buffer.
  std::span<const std::uint8_t> find(std::uint32_t buffer) const;
  void bring_home(std::uint32_t buffer);
  void bring_home_all(std::uint16_t pool);
  // Nobody reads the buffer any more.
  void end(std::uint32_t buffer);

 private:
  struct Lent {
    std::span<const std::uint8_t> payload;  // empty: not lent
    std::uint8_t* home = nullptr;
  };
  struct Pool {
    std::vector<Lent> trains;  // by slot / kTrainSlots: trains begin that far apart
    std::size_t lent = 0;
  };
  const Lent* find_lent(std::uint32_t buffer) const;
  Lent* find_lent(std::uint32_t buffer) {
    return const_cast<Lent*>(std::as_const(*this).find_lent(buffer));
  }
  static void copy_home(Pool& pool, Lent& lent);

  std::vector<Pool> pools_;
};

}  // namespace emu
