// Management datagrams of programs: what the kernel's ib_umad and ib_mad are to a stock libibumad,
// for one node. A library without I/O, threads or clocks; hca/daemon calls it.
//
// In: what programs write to /dev/infiniband/umad0, byte for byte (ib_user_mad_hdr and a datagram),
// and registrations of agents (hca/verbs/umad_file.cc); answers of the subnet's agents; datagrams
// of other nodes; time. Out: datagrams for either, and what a program reads. Nothing that a program
// writes is believed.
#pragma once

#include <rdma/ib_user_mad.h>

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "emu/base/units.h"
#include "emu/packet/mad.h"

namespace hca {

using MadFileId = std::uint32_t;  // 0: none

class MadOut {
 public:
  virtual ~MadOut() = default;
  // False: too many wait already.
  virtual bool to_subnet(emu::Lid dlid, std::uint32_t qpn, const emu::Mad& mad) = 0;
  virtual bool to_node(emu::NodeId dest, const emu::Mad& mad) = 0;
  // A message that the program's next read() returns.
  virtual void to_program(MadFileId file, std::span<const std::uint8_t> message) = 0;
  // Its program has closed it, and close() is on its way.
  virtual bool is_closed(MadFileId file) = 0;
};

class MadAgents {
 public:
  static constexpr std::size_t kAgentsMax = 32;               // of a file, as in the kernel
  static constexpr std::size_t kRequestsMax = 512;            // of a file that wait for an answer
  static constexpr std::size_t kMessageBytesLeast = 1 << 16;  // that a program can be sent

  MadAgents(MadOut& out, std::uint32_t nodes) : out_(out), nodes_(nodes) {}

  // `message_bytes_max`: what a program can be sent at once; longer tables have too many records.
  MadFileId open(std::size_t message_bytes_max = kMessageBytesLeast);
  void close(MadFileId file);
  // As the kernel answers, errno by errno. EINVAL: it takes no such agent, or there is one
  // already, or none that could end; ENOMEM: the file has kAgentsMax; EIO: a datagram of no agent.
  struct Answer {
    int error = 0;
    std::uint32_t agent = 0;  // that was registered: its number in this file
  };
  // A registration (ib_user_mad_reg_req2), the end of one (its id, four bytes) or a datagram behind
  // its ib_user_mad_hdr. None of these: whoever writes that speaks another language.
  std::optional<Answer> write(MadFileId file, std::span<const std::uint8_t> message,
                              std::uint64_t now_ns);

  // What came back from the subnet's agents; the request itself: nobody answers it.
  void from_subnet(emu::Lid from, std::uint32_t qpn, std::span<const std::uint8_t> mad);
  void from_node(emu::NodeId source, const emu::Mad& mad);
  // The session with the fabric ended: nothing that was asked will be answered.
  void lost();

  // Ends what has waited for as long as its program said.
  void service(std::uint64_t now_ns);
  bool waiting() const { return !requests_.empty(); }
  std::size_t files() const { return files_.size(); }

 private:
  using Agent = ib_user_mad_reg_req2;
  struct File {
    std::vector<Agent> agents;
    std::size_t requests = 0;
    std::size_t message_bytes_max = kMessageBytesLeast;
  };
  // A datagram that wants an answer, as the program wrote it.
  struct Request {
    MadFileId file = 0;
    ib_user_mad_hdr header{};
    emu::Mad mad{};
    std::uint64_t ends_ns = 0;        // of this try
    std::uint32_t retries = 0;        // that are left
    std::vector<std::uint8_t> table;  // the segments that have come so far
    std::uint32_t next_segment = 0;   // of a table that is not empty
  };
  using Requests = std::map<std::uint32_t, Request>;  // by key, the oldest first

  Answer add_agent(File& file, const Agent& asked);
  Answer end_agent(MadFileId file, File& from, std::uint32_t id);
  void send(MadFileId file, File& from, const ib_user_mad_hdr& header, const emu::Mad& mad,
            std::uint64_t now_ns);
  bool hand_on(const ib_user_mad_hdr& header, const emu::Mad& mad);
  bool ask(std::uint32_t key, const Request& request);
  bool again(std::uint32_t key, Request& request);
  Requests::iterator end_without_answer(Requests::iterator request);
  std::size_t room_of(MadFileId file) const;
  bool wants_more(std::uint32_t key, Request& request, std::span<const std::uint8_t> mad);
  void answered(emu::Lid from, std::uint32_t qpn, std::span<const std::uint8_t> mad);
  void unasked(emu::Lid from, const emu::Mad& mad);

  MadOut& out_;
  std::uint32_t nodes_;
  std::map<MadFileId, File> files_;  // the oldest first
  MadFileId last_file_ = 0;
  Requests requests_;
  std::uint32_t last_key_ = 0;
};

}  // namespace hca
