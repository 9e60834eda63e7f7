#include "hca/umad/agents.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

namespace hca {

namespace {

constexpr std::size_t kHeaderBytes = sizeof(ib_user_mad_hdr);
constexpr std::size_t kCommonHeaderBytes = 24;  // of every datagram (IBA 13.4.2)
constexpr std::size_t kRmppFlagsAt = 26;
constexpr std::uint8_t kRmppLast = 4;
constexpr std::size_t kRmppSegmentAt = 28;
constexpr std::size_t kRmppLengthAt = 32;
constexpr std::size_t kRecordsAt = 56;
constexpr std::uint16_t kTooManyRecords = 0x0400;  // IBA 15.2.1
constexpr std::size_t kSegmentBytesMax = 4096;     // of a table, from the subnet's administration
constexpr std::size_t kRmppHeaderBytes = 36;
constexpr std::uint64_t kNsPerMs = 1'000'000;
// Classes of vendors (IBA 13.4.4); those of the second range name the vendor at 37 (IBA 16.5).
constexpr std::uint8_t kOldVendorFirst = 0x09;
constexpr std::uint8_t kOldVendorLast = 0x0f;
constexpr std::uint8_t kVendorFirst = 0x30;
constexpr std::uint8_t kVendorLast = 0x4f;
constexpr std::size_t kOuiAt = 37;

bool names_vendor(std::uint8_t mad_class) {
  return mad_class >= kVendorFirst && mad_class <= kVendorLast;
}
// What programs may send to other nodes. By the other classes nodes believe each other: a program
// could end its neighbours' connections.
bool is_programs(const emu::Mad& mad) {
  const std::uint8_t mad_class = mad[emu::kMadClassAt];
  return names_vendor(mad_class) || (mad_class >= kOldVendorFirst && mad_class <= kOldVendorLast);
}

std::uint16_t swap(std::uint16_t v) { return __builtin_bswap16(v); }
std::uint32_t swap(std::uint32_t v) { return __builtin_bswap32(v); }
static_assert(std::endian::native == std::endian::little);

// The upper half of the transaction id names the request while it is under way, as the kernel's
// does; who asked sees its own again.
std::uint32_t key_of(std::span<const std::uint8_t> mad) {
  std::uint32_t key = 0;
  std::memcpy(&key, &mad[emu::kMadTransactionAt], sizeof key);
  return key;
}
void set_key(emu::Mad& mad, std::uint32_t key) {
  std::memcpy(&mad[emu::kMadTransactionAt], &key, sizeof key);
}
bool same_transaction(const emu::Mad& asked, std::span<const std::uint8_t> mad) {
  constexpr std::size_t kLowAt = emu::kMadTransactionAt + 4;
  return std::memcmp(&asked[kLowAt], &mad[kLowAt], 4) == 0 &&
         asked[emu::kMadClassAt] == mad[emu::kMadClassAt];
}

bool is_response(std::span<const std::uint8_t> mad) {
  return (mad[emu::kMadMethodAt] & emu::kMadResponseBit) != 0;
}
bool wants_answer(const emu::Mad& mad, const ib_user_mad_hdr& header) {
  return !is_response(mad) && header.timeout_ms != 0;
}

bool is_table(std::span<const std::uint8_t> mad) {
  return mad[emu::kMadClassAt] == emu::kClassSubnetAdmin &&
         mad[emu::kMadMethodAt] == emu::kMadGetTableResponse;
}

// A table of the subnet's administration says how long it is, all others have 256 bytes.
std::size_t bytes_of(std::span<const std::uint8_t> mad) {
  if (!is_table(mad)) return emu::kMadBytes;
  std::uint32_t length = 0;  // behind what all datagrams with RMPP have (IBA 13.6)
  std::memcpy(&length, &mad[kRmppLengthAt], sizeof length);
  return std::min<std::size_t>(mad.size(), kRmppHeaderBytes + std::size_t{swap(length)});
}

std::vector<std::uint8_t> message_of(const ib_user_mad_hdr& header,
                                     std::span<const std::uint8_t> mad) {
  std::vector<std::uint8_t> message(kHeaderBytes + mad.size());
  std::memcpy(message.data(), &header, kHeaderBytes);
  std::memcpy(message.data() + kHeaderBytes, mad.data(), mad.size());
  return message;
}

bool takes(const ib_user_mad_reg_req2& agent, const emu::Mad& mad) {
  const unsigned method = mad[emu::kMadMethodAt];
  if (agent.mgmt_class != mad[emu::kMadClassAt] || method >= 128 ||
      agent.mgmt_class_version != mad[emu::kMadClassVersionAt])
    return false;
  if ((agent.method_mask[method / 64] >> (method % 64) & 1) == 0) return false;
  const std::uint32_t oui =
      std::uint32_t{mad[kOuiAt]} << 16 | std::uint32_t{mad[kOuiAt + 1]} << 8 | mad[kOuiAt + 2];
  return !names_vendor(agent.mgmt_class) || agent.oui == oui;
}

// Classes whose datagrams may come in segments (IBA 13.6.2), as the kernel has them.
bool has_segments(std::uint8_t mad_class) {
  constexpr std::uint8_t kDevice = 0x06;
  constexpr std::uint8_t kDeviceAdministration = 0x10;
  constexpr std::uint8_t kBoard = 0x12;
  return mad_class == emu::kClassSubnetAdmin || mad_class == kDevice ||
         mad_class == kDeviceAdministration || mad_class == kBoard || names_vendor(mad_class);
}

// Whether the kernel's ib_mad would register it, but for others that are there already.
bool is_valid(const ib_user_mad_reg_req2& agent) {
  constexpr std::uint8_t kRmppVersion = 1;
  constexpr std::uint8_t kVersionsMax = 0x83;
  constexpr std::uint8_t kClassesMax = 80;
  constexpr std::uint32_t kOuiMax = 0xffffff;
  if (agent.rmpp_version > kRmppVersion) return false;
  const std::uint8_t mad_class = agent.mgmt_class;
  if (mad_class == 0) return (agent.flags & IB_USER_MAD_USER_RMPP) == 0;  // it only asks
  const bool subnet = mad_class == emu::kClassSubnetLid || mad_class == emu::kClassSubnetDirected;
  if (mad_class >= kClassesMax && !subnet) return false;
  if (agent.mgmt_class_version >= kVersionsMax || agent.oui > kOuiMax) return false;
  if (names_vendor(mad_class) && agent.oui == 0) return false;
  if (agent.rmpp_version != 0 && !has_segments(mad_class)) return false;
  return subnet == (agent.qpn == 0);  // QP0 is for these, and they for QP0
}

// Whether there is a datagram that both would take. One without a class takes none.
bool same_datagrams(const ib_user_mad_reg_req2& one, const ib_user_mad_reg_req2& other) {
  if (one.mgmt_class == 0 || one.mgmt_class != other.mgmt_class ||
      one.mgmt_class_version != other.mgmt_class_version)
    return false;
  if (names_vendor(one.mgmt_class) && one.oui != other.oui) return false;
  return ((one.method_mask[0] & other.method_mask[0]) |
          (one.method_mask[1] & other.method_mask[1])) != 0;
}

}  // namespace

MadFileId MadAgents::open(std::size_t message_bytes_max) {
  while (++last_file_ == 0 || files_.contains(last_file_)) {
  }
  files_[last_file_].message_bytes_max = message_bytes_max;
  return last_file_;
}

void MadAgents::close(MadFileId file) {
  files_.erase(file);
  std::erase_if(requests_, [file](const auto& entry) { return entry.second.file == file; });
}

std::optional<MadAgents::Answer> MadAgents::write(MadFileId file,
                                                  std::span<const std::uint8_t> message,
                                                  std::uint64_t now_ns) {
  const auto found = files_.find(file);
  if (found == files_.end()) return {};
  File& from = found->second;
  if (message.size() == sizeof(Agent)) {
    Agent agent;
    std::memcpy(&agent, message.data(), sizeof agent);
    return add_agent(from, agent);
  }
  if (message.size() == sizeof(__u32)) {
    std::uint32_t id = 0;
    std::memcpy(&id, message.data(), sizeof id);
    return end_agent(file, from, id);
  }
  if (message.size() < kHeaderBytes + kCommonHeaderBytes ||
      message.size() > kHeaderBytes + emu::kMadBytes) {
    return {};
  }
  ib_user_mad_hdr header;
  std::memcpy(&header, message.data(), sizeof header);
  if (std::ranges::find(from.agents, header.id, &Agent::id) == from.agents.end())
    return Answer{.error = EIO};
  emu::Mad mad{};  // of a shorter one the rest is 0
  std::memcpy(mad.data(), message.data() + kHeaderBytes, message.size() - kHeaderBytes);
  send(file, from, header, mad, now_ns);
  return Answer{};
}

MadAgents::Answer MadAgents::add_agent(File& file, const Agent& asked) {
  if (asked.qpn > emu::kGeneralServicesQp || (asked.flags & ~IB_USER_MAD_REG_FLAGS_CAP) != 0)
    return {.error = EINVAL};
  std::uint32_t taken = 0;  // a bit for each number
  static_assert(kAgentsMax == 32);
  for (const Agent& one : file.agents) taken |= 1U << one.id;
  if (taken == ~0U) return {.error = ENOMEM};
  if (!is_valid(asked)) return {.error = EINVAL};
  for (const auto& [id, other] : files_) {
    const auto same = [&](const Agent& agent) { return same_datagrams(agent, asked); };
    if (std::ranges::any_of(other.agents, same) && !out_.is_closed(id)) return {.error = EINVAL};
  }
  file.agents.push_back(asked);
  file.agents.back().id = static_cast<std::uint32_t>(std::countr_one(taken));
  return {.agent = file.agents.back().id};
}

MadAgents::Answer MadAgents::end_agent(MadFileId file, File& from, std::uint32_t id) {
  if (std::erase_if(from.agents, [id](const Agent& agent) { return agent.id == id; }) == 0)
    return {.error = EINVAL};
  // Another may have its number next, and has not asked.
  from.requests -= std::erase_if(requests_, [&](const auto& entry) {
    return entry.second.file == file && entry.second.header.id == id;
  });
  return {};
}

void MadAgents::send(MadFileId file, File& from, const ib_user_mad_hdr& header, const emu::Mad& mad,
                     std::uint64_t now_ns) {
  if (!wants_answer(mad, header)) {
    (void)hand_on(header, mad);
    return;
  }
  // Who asks more than it reads loses the oldest.
  if (from.requests >= kRequestsMax) {
    end_without_answer(std::ranges::find_if(
        requests_, [file](const auto& entry) { return entry.second.file == file; }));
  }
  while (++last_key_ == 0 || requests_.contains(last_key_)) {
  }
  const auto request =
      requests_
          .emplace(
              last_key_,
              Request{
                  file, header, mad, now_ns + header.timeout_ms * kNsPerMs, header.retries, {}, 0})
          .first;
  ++from.requests;
  if (!ask(last_key_, request->second)) end_without_answer(request);
}

// False: it goes nowhere.
bool MadAgents::hand_on(const ib_user_mad_hdr& header, const emu::Mad& mad) {
  const emu::Lid lid = swap(std::uint16_t{header.lid});
  if (emu::is_for_subnet(mad)) return out_.to_subnet(lid, swap(std::uint32_t{header.qpn}), mad);
  if (!is_programs(mad) || lid == 0 || lid > nodes_ ||
      swap(std::uint32_t{header.qpn}) != emu::kGeneralServicesQp)
    return false;
  return out_.to_node(static_cast<emu::NodeId>(lid - 1), mad);
}

std::size_t MadAgents::room_of(MadFileId file) const {
  const auto found = files_.find(file);
  return found == files_.end() ? 0 : found->second.message_bytes_max;
}

// For an answer, or for the segment that its table lacks. One segment at a time is under way, each
// asked for when the one before has come: of a lost one no later one tells, time does. False: it
// goes nowhere.
bool MadAgents::ask(std::uint32_t key, const Request& request) {
  emu::Mad mad = request.mad;
  if (!request.table.empty()) {
    const std::uint32_t segment = swap(request.next_segment);
    std::memcpy(&mad[kRmppSegmentAt], &segment, sizeof segment);
  }
  set_key(mad, key);
  return hand_on(request.header, mad);
}

// Its time is over: asked once more, if its program wants that.
bool MadAgents::again(std::uint32_t key, Request& request) {
  if (request.retries == 0) return false;
  --request.retries;
  request.ends_ns += request.header.timeout_ms * kNsPerMs;
  return ask(key, request);
}

// As the kernel says that a time is over: the datagram's header comes back, with a status.
MadAgents::Requests::iterator MadAgents::end_without_answer(Requests::iterator request) {
  if (request == requests_.end()) return request;
  Request ended = request->second;
  const auto next = requests_.erase(request);
  const auto file = files_.find(ended.file);
  if (file != files_.end()) --file->second.requests;
  ended.header.status = ETIMEDOUT;
  ended.header.length = kHeaderBytes + kCommonHeaderBytes;
  out_.to_program(ended.file,
                  message_of(ended.header, std::span(ended.mad).first(kCommonHeaderBytes)));
  return next;
}

void MadAgents::from_subnet(emu::Lid from, std::uint32_t qpn, std::span<const std::uint8_t> mad) {
  if (mad.size() < emu::kMadBytes) return;
  if (is_response(mad)) return answered(from, qpn, mad.first(bytes_of(mad)));
  const auto request = requests_.find(key_of(mad));
  if (request != requests_.end() && same_transaction(request->second.mad, mad))
    end_without_answer(request);
}

void MadAgents::from_node(emu::NodeId source, const emu::Mad& mad) {
  const emu::Lid from = emu::lid_of(source);
  if (is_response(mad)) return answered(from, emu::kGeneralServicesQp, mad);
  unasked(from, mad);
}

// Of a table all segments are asked for before its program sees it, as the kernel does.
bool MadAgents::wants_more(std::uint32_t key, Request& request, std::span<const std::uint8_t> mad) {
  if (!is_table(mad)) return false;
  std::uint32_t segment = 0;
  std::memcpy(&segment, &mad[kRmppSegmentAt], sizeof segment);
  segment = swap(segment);
  // Who asked twice is answered twice.
  if (!request.table.empty() && segment != request.next_segment) return true;
  if (mad.size() <= kRecordsAt) return false;
  const std::size_t header = request.table.empty() ? 0 : kRecordsAt;
  request.table.insert(request.table.end(), mad.begin() + static_cast<std::ptrdiff_t>(header),
                       mad.end());
  if ((mad[kRmppFlagsAt] & kRmppLast) != 0) return false;
  request.next_segment = segment + 1;
  if (kHeaderBytes + request.table.size() + kSegmentBytesMax <= room_of(request.file)) {
    (void)ask(key, request);  // what a full queue does not take is asked for when its time is over
    return true;
  }
  const std::uint16_t status = swap(kTooManyRecords);
  std::memcpy(&request.table[emu::kMadStatusAt], &status, sizeof status);
  return false;
}

void MadAgents::answered(emu::Lid from, std::uint32_t qpn, std::span<const std::uint8_t> mad) {
  const auto found = requests_.find(key_of(mad));
  if (found == requests_.end() || !same_transaction(found->second.mad, mad)) return;
  if (wants_more(found->first, found->second, mad)) return;
  const Request request = std::move(found->second);
  requests_.erase(found);
  if (!request.table.empty()) mad = request.table;
  const auto file = files_.find(request.file);
  if (file != files_.end()) --file->second.requests;
  ib_user_mad_hdr header = request.header;
  header.status = 0;
  header.length = static_cast<std::uint32_t>(kHeaderBytes + mad.size());
  header.lid = swap(std::uint16_t{from});
  header.qpn = swap(qpn);
  std::vector<std::uint8_t> message = message_of(header, mad);
  std::memcpy(&message[kHeaderBytes + emu::kMadTransactionAt], &request.mad[emu::kMadTransactionAt],
              8);
  out_.to_program(request.file, message);
}

// To the agent that has registered for it, if there is one.
void MadAgents::unasked(emu::Lid from, const emu::Mad& mad) {
  for (const auto& [id, file] : files_) {
    const auto agent =
        std::ranges::find_if(file.agents, [&](const Agent& one) { return takes(one, mad); });
    if (agent == file.agents.end()) continue;
    ib_user_mad_hdr header{};
    header.id = agent->id;
    header.length = static_cast<std::uint32_t>(kHeaderBytes + mad.size());
    header.lid = swap(std::uint16_t{from});
    header.qpn = swap(std::uint32_t{emu::kGeneralServicesQp});
    out_.to_program(id, message_of(header, mad));
    return;
  }
}

void MadAgents::lost() {
  for (auto it = requests_.begin(); it != requests_.end();) it = end_without_answer(it);
}

void MadAgents::service(std::uint64_t now_ns) {
  for (auto it = requests_.begin(); it != requests_.end();)
    it = it->second.ends_ns <= now_ns && !again(it->first, it->second) ? end_without_answer(it)
                                                                       : std::next(it);
}

}  // namespace hca
