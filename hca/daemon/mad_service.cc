#include "hca/daemon/mad_service.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "emu/base/guid.h"
#include "emu/clock/host.h"
#include "hca/abi/control.h"

namespace hca {

namespace {

// Who does not read loses what comes behind so much, as a full queue of datagrams does.
constexpr std::size_t kWaitingBytesMax = 1U << 20;
// A socket takes messages of nearly its buffer: long tables want a large one. The kernel grants
// what the machine allows (net.core.wmem_max).
constexpr int kBufferBytes = 1 << 22;
constexpr std::size_t kBufferSlackBytes = 4096;

std::size_t message_bytes_max(int socket) {
  (void)::setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &kBufferBytes, sizeof kBufferBytes);
  int bytes = 0;
  socklen_t size = sizeof bytes;
  if (::getsockopt(socket, SOL_SOCKET, SO_SNDBUF, &bytes, &size) != 0 || bytes < 0)
    return MadAgents::kMessageBytesLeast;
  const auto buffer = static_cast<std::size_t>(bytes);
  return std::clamp(buffer - std::min(buffer, kBufferSlackBytes), MadAgents::kMessageBytesLeast,
                    kWaitingBytesMax);
}

// False: its socket is full for now. A message that cannot be sent at all is lost.
bool sent(int socket, std::span<const std::uint8_t> message) {
  const auto flags = MSG_NOSIGNAL | MSG_DONTWAIT;
  return ::send(socket, message.data(), message.size(), flags) >= 0 || errno != EAGAIN;
}

OwnPort own_port(const emu::Config& config, const HostOptions& options) {
  OwnPort own;
  own.description = config.nodes[options.node].name + " " + config.hca.device;
  own.device.guid = emu::guid_of(options.node);
  own.device.vendor_id = config.hca.vendor_id & 0xffffff;
  own.link = {config.network.link_bps(), config.datagram_bytes(),
              static_cast<std::uint8_t>(std::min<std::uint32_t>(config.qos.qos_high_limit, 255))};
  own.lid = emu::lid_of(options.node);
  return own;
}

}  // namespace

MadService::MadService(Host& host, const emu::Config& config, const HostOptions& options)
    : host_(host), agents_(*this, options.nodes), own_(own_port(config, options)) {}

void MadService::port_is(bool up) {
  up_ = up;
  if (!up) agents_.lost();
}

bool MadService::to_subnet(emu::Lid dlid, std::uint32_t qpn, const Mad& mad) {
  const auto answer = up_ ? std::nullopt : answer_of(own_, mad);
  if (!answer) return host_.send_subnet_mad(dlid, qpn, mad);
  own_answers_.push_back(*answer);
  return true;
}

// When the request is in its table.
void MadService::hand_back() {
  for (const Mad& answer : own_answers_) agents_.from_subnet(own_.lid, emu::kSubnetQp, answer);
  own_answers_.clear();
}

MadFileId MadService::open(int socket) {
  const MadFileId file = agents_.open(message_bytes_max(socket));
  files_[file].socket = socket;
  return file;
}

void MadService::close(MadFileId file) {
  agents_.close(file);
  files_.erase(file);
}

bool MadService::write(MadFileId file, std::span<const std::byte> message,
                       const emu::UniqueFd& answer) {
  const auto written =
      agents_.write(file, {reinterpret_cast<const std::uint8_t*>(message.data()), message.size()},
                    emu::host_now_ns());
  hand_back();
  if (!written) return false;
  const UmadAnswer said{written->error, written->agent};
  if (answer) (void)!::write(answer.get(), &said, sizeof said);
  return true;
}

void MadService::to_program(MadFileId file, std::span<const std::uint8_t> message) {
  const auto found = files_.find(file);
  if (found == files_.end()) return;
  File& to = found->second;
  if (to.waiting.empty() && sent(to.socket, message)) return;
  if (to.waiting_bytes + message.size() > kWaitingBytesMax) return;
  to.waiting_bytes += message.size();
  to.waiting.emplace_back(message.begin(), message.end());
}

bool MadService::is_closed(MadFileId file) {
  const auto found = files_.find(file);
  if (found == files_.end()) return true;
  pollfd look{found->second.socket, 0, 0};
  return ::poll(&look, 1, 0) > 0;  // who waits for nothing hears of the end only
}

void MadService::service(std::uint64_t host_ns) {
  agents_.service(host_ns);
  hand_back();
  for (auto& [id, file] : files_) {
    while (!file.waiting.empty() && sent(file.socket, file.waiting.front())) {
      file.waiting_bytes -= file.waiting.front().size();
      file.waiting.pop_front();
    }
  }
}

}  // namespace hca
