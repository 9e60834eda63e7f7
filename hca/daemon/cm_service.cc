#include "hca/daemon/cm_service.h"

#include <arpa/inet.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace hca {

namespace {

CmOptions cm_options(const HostOptions& options) {
  CmOptions cm;
  cm.guid_base = options.guid_base;
  cm.gid_prefix = options.gid_prefix;
  cm.roce = options.roce;
  cm.path_mtu = 1;
  while (cm.path_mtu < 5 && (256U << cm.path_mtu) <= options.mtu_bytes) ++cm.path_mtu;
  cm.seed = options.seed;
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

CmFileId CmService::open(emu::UniqueFd events) {
  const CmFileId file = cm_.open();
  files_[file] = std::move(events);
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
  cm_.advance(now_ns);
}

void CmService::event_waits(CmFileId file) {
  const auto found = files_.find(file);
  if (found == files_.end()) return;
  const char token = 1;
  // A full pipe holds 65536 of them: the program does not read, and will find the rest when it
  // does.
  (void)!::write(found->second.get(), &token, sizeof token);
}

}  // namespace hca
