// Completion queues for programs: made, resized in two steps, destroyed.
#include <bit>
#include <cerrno>
#include <utility>

#include "hca/daemon/control.h"
#include "hca/daemon/request.h"

namespace hca {

int Control::create_cq(Client& client, const ControlRequest& request, ControlReply& reply) {
  const ControlCq& cq = request.cq;
  if (cq.depth == 0 || cq.depth > kMaxCqe || !std::has_single_bit(cq.depth)) return EINVAL;
  if (cq.channel != kNoChannel && !client.channels.contains(cq.channel)) return EINVAL;
  auto region = emu::Region::create("flitnet-cq", cq_bytes(cq.depth));
  if (!region) return no_room();
  const auto number = host_->create_cq(
      client.id, cq.depth, {reinterpret_cast<std::uint8_t*>(region->data()), cq_bytes(cq.depth)});
  if (!number) return number.error();
  reply.number = *number;
  auto fd = region->take_fd();
  keep(client.cqs, *number, {std::move(*region), cq.channel, {}},
       [&] { (void)host_->destroy_cq(client.id, *number); });
  hand_over(std::move(fd));
  return 0;
}

int Control::resize_cq(Client& client, const ControlRequest& request) {
  const auto queue = client.cqs.find(request.number);
  if (queue == client.cqs.end()) return ENOENT;
  const std::uint32_t depth = request.cq.depth;
  if (depth == 0 || depth > kMaxCqe || !std::has_single_bit(depth)) return EINVAL;
  auto region = emu::Region::create("flitnet-cq", cq_bytes(depth));
  if (!region) return no_room();
  hand_over(region->take_fd());
  queue->second.prepared = std::move(*region);
  return 0;
}

// Only now is the new ring in use: its descriptor may have been lost on the way to the program.
int Control::adopt_cq(Client& client, const ControlRequest& request) {
  const auto queue = client.cqs.find(request.number);
  if (queue == client.cqs.end()) return ENOENT;
  emu::Region region = std::move(queue->second.prepared);
  const std::uint32_t depth = request.cq.depth;
  if (depth == 0) return 0;
  if (!region || depth > kMaxCqe) return EINVAL;
  const int error =
      host_->resize_cq(client.id, request.number, depth,
                       {reinterpret_cast<std::uint8_t*>(region.data()), region.size()});
  if (error == 0) queue->second.region = std::move(region);
  return error;
}

int Control::destroy_cq(Client& client, const ControlRequest& request) {
  const std::uint32_t number = request.number;
  const int error = host_->destroy_cq(client.id, number);
  if (error != 0) return error;
  const auto queue = client.cqs.find(number);
  if (queue == client.cqs.end()) return 0;
  const auto channel = client.channels.find(queue->second.channel);
  if (channel != client.channels.end()) {
    recall(channel->second, [number](const EventRecord& record) { return record[0] == number; });
  }
  client.cqs.erase(queue);
  recall_async(client, AsyncSource::cq, number);
  return 0;
}

}  // namespace hca
