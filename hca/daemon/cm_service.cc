#include "hca/daemon/cm_service.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "emu/base/prng.h"

namespace hca {

namespace {

CmOptions cm_options(const HostOptions& options) {
  CmOptions cm;
  cm.guid_base = options.guid_base;
  cm.gid_prefix = options.gid_prefix;
  cm.roce = options.roce;
  cm.path_mtu = 1;
  while (cm.path_mtu < 5 && (256U << cm.path_mtu) <= options.datagram_bytes) ++cm.path_mtu;
  cm.seed = options.seed;
  // The host's time when the node started, as its bookings use it: here 32 bits that depend on it.
  cm.life = static_cast<std::uint32_t>(emu::Prng(options.first_connection)() >> 32);
  return cm;
}

}  // namespace

std::string address_text(std::uint32_t v4) {
  char text[INET_ADDRSTRLEN] = {};
  const in_addr address{htonl(v4)};
  ::inet_ntop(AF_INET, &address, text, sizeof text);
  return text;
}

CmService::CmService(const emu::Config& config, const HostOptions& options)
    : cycle_time_(options.cycle_time),
      cm_(cm_options(options), AddressBook(options.node, node_addresses(config)), *this) {}

CmFileId CmService::open(int events, std::uint32_t owner) {
  // Both ends of the pipe, to put a byte in and to take it back, by a description of our own: flags
  // of the program's, which it may change, are not ours.
  emu::UniqueFd both = emu::reopen(events, O_RDWR | O_NONBLOCK);
  if (!both) return 0;
  const CmFileId file = cm_.open(owner);
  files_[file] = std::move(both);
  return file;
}

void CmService::close(CmFileId file) {
  cm_.close(file);
  files_.erase(file);
}

void CmService::service(emu::Cycle now) {
  const emu::EmuNs now_ns = cycle_time_.ns(now);
  std::swap(arrived_, serving_);
  for (const WaitingMad& mad : serving_) cm_.receive(mad.dest, mad.bytes, now_ns);
  serving_.clear();
  repeating_ = true;
  cm_.advance(now_ns);
  repeating_ = false;
}

void CmService::send(emu::NodeId dest, const Mad& mad) {
  if (dest >= host_->options().nodes) return;  // the host would refuse it for ever
  if (unsent_.empty() && host_->send_mad(dest, mad)) return;
  // A repetition finds what it repeats still waiting, maybe: without a network it would be one more
  // each time.
  if (repeating_ || unsent_.size() >= kWaitingMax) return;
  unsent_.push_back({dest, mad});
}

// A program's thread takes the byte out before it asks for the event, so one is put in again as
// long as more events wait: all who wait are woken one after the other.
void CmService::events_wait(CmFileId file, bool some) {
  const auto found = files_.find(file);
  if (found == files_.end()) return;
  const int pipe = found->second.get();
  int there = 0;
  if (::ioctl(pipe, FIONREAD, &there) != 0 || (there != 0) == some) return;
  std::array<char, 64> bytes{1};  // a program that writes more there fools itself
  if (some) {
    (void)!::write(pipe, bytes.data(), 1);
  } else {
    (void)!::read(pipe, bytes.data(), bytes.size());
  }
}

}  // namespace hca
