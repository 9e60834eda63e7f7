// The communication manager of a node: what the kernel's rdma_ucm and ib_cm are to librdmacm.
//
//   in:  commands of programs, byte for byte as they write() them to /dev/infiniband/rdma_cm
//        (<rdma/rdma_user_cm.h>); management datagrams of other nodes; time
//   out: answers to commands; datagrams; for each file whether events wait
//
// A library without I/O, threads or clocks; hca/daemon calls it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "emu/base/units.h"
#include "hca/cm/address.h"
#include "hca/host/mad.h"

namespace hca {

using CmFileId = std::uint32_t;  // an open /dev/infiniband/rdma_cm of a program

struct CmOptions {
  std::uint64_t guid_base = 0;   // node n: guid_base + n + 1
  std::uint64_t gid_prefix = 0;  // of every GID
  bool roce = false;             // then connections go by the GIDs that are IP addresses
  std::uint8_t path_mtu = 4;     // IBV_MTU_*
  std::uint8_t rate = 2;         // IBV_RATE_*
  std::uint64_t seed = 1;        // starting PSNs, ephemeral ports
  // What this start of the node has to itself: two lives of it have different ones, so that their
  // connections are never taken for one another's.
  std::uint32_t life = 0;
  std::uint32_t ids_max = 65536;
  // Of one program, and as many groups and last words of ids that are gone: twice the QPs that a
  // node has, and seven more programs find as much.
  std::uint32_t ids_of_program_max = ids_max / 8;
};

class CmOut {
 public:
  virtual ~CmOut() = default;
  virtual void send(emu::NodeId dest, const Mad& mad) = 0;
  // Whether events wait on a file: told whenever one has come or gone.
  virtual void events_wait(CmFileId file, bool some) = 0;
};

struct CmState;  // hca/cm/state.h

class Cm {
 public:
  Cm(const CmOptions& options, AddressBook addresses, CmOut& out);
  ~Cm();
  Cm(const Cm&) = delete;
  Cm& operator=(const Cm&) = delete;

  // `owner`: the program whose it is. Ids move only between files of one owner, whose share it is
  // that limits them.
  CmFileId open(std::uint32_t owner);
  // Everything that was made by it ends: peers are told.
  void close(CmFileId file);

  struct Answer {
    int error = 0;          // an errno
    std::size_t bytes = 0;  // of `to`
  };
  // One command: rdma_ucm_cmd_hdr and what follows. Behind it, where the ABI has something that
  // only a process understands, what it means: SET_OPTION the option's bytes, MIGRATE_ID the
  // CmFileId (4 bytes) instead of the descriptor. The answer's length is at most what the header
  // asks for.
  Answer command(CmFileId file, std::span<const std::uint8_t> command, std::span<std::uint8_t> to,
                 emu::EmuNs now_ns);
  void receive(emu::NodeId source, const Mad& mad, emu::EmuNs now_ns);
  void advance(emu::EmuNs now_ns);  // timers

  std::size_t ids() const;  // that exist: for status and tests
  std::size_t listeners() const;

 private:
  std::unique_ptr<CmState> state_;
};

}  // namespace hca
