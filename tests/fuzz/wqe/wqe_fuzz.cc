// libFuzzer target: a program that writes anything into its rings, and a fabric that delivers
// anything. Goal: Host never crashes, never touches memory that was not registered (ASan), never
// hangs; a well behaved neighbour on the same node still exchanges its messages. Method: the input
// is a script of small steps, each ring write and packet taken from it.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <vector>

#include "emu/packet/build.h"
#include "emu/packet/parse.h"
#include "tests/sim/app.h"

namespace {

struct Bytes {
  const std::uint8_t* at;
  std::size_t left;
  std::uint8_t u8() {
    if (left == 0) return 0;
    --left;
    return *at++;
  }
  template <class T>
  T take() {
    T value{};
    const std::size_t n = left < sizeof value ? left : sizeof value;
    if (n > 0) std::memcpy(&value, at, n);
    at += n;
    left -= n;
    return value;
  }
  void fill(std::uint8_t* to, std::size_t length) {
    const std::size_t n = left < length ? left : length;
    if (n > 0) std::memcpy(to, at, n);
    at += n;
    left -= n;
  }
};

struct Quiet : hca::HostEvents {
  void completion(hca::ClientId, std::uint32_t) override {}
  void wake_cq(hca::ClientId, std::uint32_t) override {}
  void async(hca::ClientId, hca::AsyncEvent, std::uint32_t) override {}
  void admission(hca::ClientId, std::uint32_t, const hca::AdmissionOutcome&) override {}
};

struct Sink : hca::PacketPort {
  static constexpr std::uint16_t kSlots = 64;
  std::vector<std::uint8_t> memory =
      std::vector<std::uint8_t>((kSlots + 2 * emu::kTrainSlots) * emu::kPacketBytesMax);
  std::vector<std::uint16_t> free;
  std::vector<std::uint16_t> free_trains;
  std::vector<emu::TxDesc> sent;
  std::map<std::uint16_t, std::pair<std::span<const std::uint8_t>, std::uint8_t*>> lent;
  explicit Sink(bool trains) {
    for (std::uint16_t i = 0; i < kSlots; ++i) free.push_back(i);
    if (trains) free_trains = {kSlots, kSlots + emu::kTrainSlots};
  }
  bool reserve(hca::PacketSlot& slot) override { return take(free, slot); }
  bool reserve_train(hca::PacketSlot& slot) override { return take(free_trains, slot); }
  bool take(std::vector<std::uint16_t>& from, hca::PacketSlot& slot) {
    if (from.empty()) return false;
    slot.buffer = from.back();
    slot.bytes = &memory[slot.buffer * emu::kPacketBytesMax];
    from.pop_back();
    return true;
  }
  bool lend(const hca::PacketSlot& slot, std::span<const std::uint8_t> payload,
            std::uint8_t* home) override {
    lent[slot.buffer] = {payload, home};
    return true;
  }
  void bring_home() override {
    for (const auto& [buffer, payload] : lent) std::ranges::copy(payload.first, payload.second);
    lent.clear();
  }
  void cancel(std::uint16_t buffer) override {
    lent.erase(buffer);
    (buffer < kSlots ? free : free_trains).push_back(buffer);
  }
  void send(std::span<const emu::TxDesc> packets) override {
    sent.insert(sent.end(), packets.begin(), packets.end());
  }
};

struct Scene {
  sim::LocalMemory memory;
  Sink sink;
  Quiet events;
  hca::Host host;
  sim::App hostile;
  sim::App good;
  std::vector<std::uint8_t> bytes = std::vector<std::uint8_t>(8192);
  std::vector<std::uint8_t> good_bytes = std::vector<std::uint8_t>(4096);
  hca::MrKeys keys, good_keys;
  sim::Completions cq, good_cq;
  sim::Shared srq;
  std::vector<sim::Queue> queues;
  sim::Queue from, to;
  emu::Cycle now = 1000;

  static hca::HostOptions options(bool trains) {
    hca::HostOptions options;
    options.nodes = 4;
    options.qps_max = 16;
    options.cqs_max = 8;
    options.mrs_max = 8;
    options.pds_max = 4;
    options.clients_max = 4;
    options.launch_horizon_us = 1000;
    options.power_w = trains ? 0 : 1e-4;
    options.seals = !trains;
    options.class_of_sl.fill(emu::TrafficClass::best_effort);
    options.class_of_sl[1] = emu::TrafficClass::real_time;
    options.lanes_of_sl[1] = 0x7ff0;
    return options;
  }

  explicit Scene(bool trains)
      : sink(trains), host(options(trains), memory, sink, events), hostile(host), good(host) {
    keys = hostile.reg(bytes.data(), bytes.size(),
                       hca::kAccessLocalWrite | hca::kAccessRemoteWrite | hca::kAccessRemoteRead |
                           hca::kAccessRemoteAtomic);
    cq = hostile.make_cq(64);
    srq = hostile.make_srq(8, 4);
    const hca::QpCapacity capacity{8, 8, 4, 4, 64};
    constexpr hca::QpType kTypes[] = {hca::QpType::rc, hca::QpType::rc, hca::QpType::ud,
                                      hca::QpType::uc};
    for (int i = 0; i < 4; ++i) {
      const hca::QpType type = kTypes[i];
      const bool shares = i == 1;  // the QP that talks to a neighbour
      const hca::QpCapacity own{8, shares ? 0u : 8u, 4, 4, 64};
      queues.push_back(
          hostile.make_qp(type, cq, cq, own, false, shares ? srq.number : hca::kNoSrqNumber));
      sim::Path path;
      path.dest = static_cast<emu::NodeId>(i);  // one to itself, one to a neighbour
      path.dest_qpn = queues[0].number;
      path.sl = static_cast<std::uint8_t>(i);
      if (type != hca::QpType::ud) {
        hostile.connect(queues.back(), path, now);
      } else {
        hostile.ready_ud(queues.back(), 0x11, now);
      }
    }
    good_keys = good.reg(good_bytes.data(), good_bytes.size(), hca::kAccessLocalWrite);
    good_cq = good.make_cq(64);
    from = good.make_qp(hca::QpType::rc, good_cq, good_cq, capacity);
    to = good.make_qp(hca::QpType::rc, good_cq, good_cq, capacity);
    sim::Path path;
    path.timeout = 0;
    path.dest_qpn = to.number;
    good.connect(from, path, now);
    path.dest_qpn = from.number;
    good.connect(to, path, now);
  }

  void write_send(Bytes& in, sim::Queue& queue) {
    const std::uint32_t tail = queue.page->sq_tail.load();
    std::uint8_t* slot = queue.region + queue.layout.sq_offset +
                         (tail & (queue.layout.sq_depth - 1)) * queue.layout.sq_stride;
    in.fill(slot, queue.layout.sq_stride);
    auto* wqe = reinterpret_cast<hca::SendWqe*>(slot);
    if (in.u8() % 2 == 0) {  // mostly plausible, so that more than the first check is reached
      wqe->opcode = static_cast<hca::WrOpcode>(in.u8() % 16);
      wqe->num_sge = in.u8() % 6;
      wqe->inline_length %= 70;
      wqe->launch_ns %= 4'000'000;
      wqe->dlid = static_cast<std::uint16_t>(wqe->dlid % 6);
      wqe->rkey = keys.rkey;
      wqe->remote_addr = reinterpret_cast<std::uint64_t>(bytes.data()) + in.u8();
      auto* sges = reinterpret_cast<hca::Sge*>(slot + sizeof *wqe);
      for (int i = 0; i < 4; ++i) {
        sges[i] = {reinterpret_cast<std::uint64_t>(bytes.data()) + in.u8(),
                   in.take<std::uint16_t>() % 4200u, keys.lkey};
      }
    }
    queue.page->sq_tail.store(tail + 1);
  }

  void deliver(Bytes& in) {
    std::vector<std::uint8_t> packet(4 * emu::kPacketBytesMax);
    std::vector<std::uint8_t> lent;
    hca::Arrival arrival{};
    arrival.desc.src = in.u8() % 5;
    arrival.desc.traffic_class = static_cast<emu::TrafficClass>(in.u8() % 3);
    if (in.u8() % 4 == 0) {
      const std::size_t length = in.take<std::uint16_t>() % emu::kPacketBytesMax;
      in.fill(packet.data(), length);
      arrival.desc.length = static_cast<std::uint16_t>(length);
      arrival.desc.more_packets = in.u8() % 2 == 0 ? 0 : in.u8();
    } else {
      build(in, packet, arrival.desc);
      if (arrival.desc.more_packets != 0 && in.u8() % 2 == 0) {
        lent.resize(arrival.desc.length * 4U - emu::kTrainHeadBytes - in.u8() % 5);
        packet.resize(emu::kTrainHeadBytes);  // whoever reads it there reads beyond
        packet.shrink_to_fit();
        arrival.lent = lent;
      }
    }
    arrival.bytes = packet.data();
    host.receive({&arrival, 1}, now);
  }

  void build(Bytes& in, std::vector<std::uint8_t>& packet, emu::RxDesc& desc) {
    static constexpr std::uint8_t kOpcodes[] = {
        0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x0c,
        0x0d, 0x0e, 0x0f, 0x10, 0x11, 0x12, 0x13, 0x14, 0x16, 0x17, 0x1d, 0x64, 0x65,
        0x20, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28, 0x29, 0x2a, 0x2b};
    emu::PacketHeaders headers;
    headers.lrh = {0, 0, 1, emu::lid_of(desc.src)};
    headers.bth.opcode = static_cast<emu::Opcode>(kOpcodes[in.u8() % sizeof kOpcodes]);
    headers.bth.dest_qp = queues[in.u8() % queues.size()].number;
    headers.bth.psn = in.u8() % 12;
    headers.bth.ack_request = in.u8() % 2 == 0;
    headers.has_grh = in.u8() % 4 == 0;
    headers.deth.qkey = 0x11;
    headers.reth = {reinterpret_cast<std::uint64_t>(bytes.data()) + in.u8(), keys.rkey,
                    in.take<std::uint16_t>()};
    headers.atomic = {headers.reth.address & ~std::uint64_t{7}, keys.rkey, in.u8(), in.u8()};
    headers.aeth = {in.u8(), in.u8()};
    const auto& info = emu::opcode_info(headers.bth.opcode);
    const std::size_t payload = info.payload ? in.take<std::uint16_t>() % 2049 : 0;
    const std::span<std::byte> slot(reinterpret_cast<std::byte*>(packet.data()), packet.size());
    if (emu::has_parts(headers.bth.opcode) && in.u8() % 3 == 0) {
      constexpr std::uint32_t kFull[] = {612, 612, 256, 4, 1024};
      const std::uint32_t full = kFull[in.u8() % std::size(kFull)];
      const std::uint32_t more = 1 + in.u8() % 15;
      const std::uint32_t bytes = full * more + 1 + payload % full;
      emu::write_train_headers(slot.first<emu::kTrainHeadBytes>(), headers, bytes, full);
      desc.length = static_cast<std::uint16_t>((emu::kTrainHeadBytes + bytes + 3) / 4);
      desc.more_packets = static_cast<std::uint16_t>(more);
      return;
    }
    const std::size_t offset = emu::write_headers(slot, headers, payload);
    desc.length = static_cast<std::uint16_t>(emu::seal_packet(slot, offset + payload));
  }

  void fabric_step(Bytes& in) {
    now += in.take<std::uint16_t>();
    host.advance(now);
    for (const emu::TxDesc& desc : sink.sent) {
      const emu::Injected injected{desc.cookie, now, desc.flits, desc.traffic_class, desc.kind, 0};
      host.injected({&injected, 1}, now);
      sink.cancel(desc.buffer);
    }
    sink.sent.clear();
  }

  void step(Bytes& in) {
    sim::Queue& queue = queues[in.u8() % queues.size()];
    switch (in.u8() % 12) {
      case 0:
      case 1:
      case 2:
        write_send(in, queue);
        break;
      case 3: {
        const hca::Sge sge{reinterpret_cast<std::uint64_t>(bytes.data()), in.take<std::uint16_t>(),
                           keys.lkey};
        hostile.post_recv(queue, 1, {&sge, 1});
        break;
      }
      case 4:
        if (queue.layout.rq_depth != 0) {
          queue.page->rq_tail.fetch_add(1);
          in.fill(queue.region + queue.layout.rq_offset, in.u8());
        } else {
          srq.page->tail.fetch_add(in.u8() % 4 == 0 ? in.take<std::uint32_t>() : 1);
          in.fill(srq.region + sizeof(hca::SrqPage), in.u8());
        }
        break;
      case 5:
        (in.u8() % 2 == 0 ? queue.page->sq_tail : queue.page->rq_tail)
            .store(in.take<std::uint32_t>());
        break;
      case 6:
        (in.u8() % 4 == 0 ? cq.page->head : cq.page->armed).store(in.take<std::uint32_t>());
        break;
      case 7:
      case 8:
        deliver(in);
        break;
      case 9: {
        hca::QpAttributes attributes = in.take<hca::QpAttributes>();
        hostile.modify(queue, attributes, in.take<std::uint32_t>() & 0x1fffff, now);
        break;
      }
      case 10:
        host.request_rate(hostile.client(), queue.number, in.take<std::uint32_t>(), 0, now);
        break;
      default: {
        hca::Cqe cqe;
        while (cq.page->tail.load() - cq.page->head.load() <= cq.depth && sim::App::poll(cq, cqe)) {
        }
      }
    }
    // The doorbell is rung for every QP, whatever the program did.
    queue.page->rung.store(0);
    hostile.post(queue, {.flags = 0});
    hostile.ring(now);
    fabric_step(in);
  }

  // The neighbour's message arrives, whatever happened before.
  void neighbour() {
    const hca::Sge sge{reinterpret_cast<std::uint64_t>(good_bytes.data()), 100, good_keys.lkey};
    const hca::Sge far{sge.addr + 2000, 100, good_keys.lkey};
    good.post_recv(to, 2, {&far, 1});
    good.post(from, {.wr_id = 1, .sges = {&sge, 1}});
    good.ring(now);
    Bytes none{nullptr, 0};
    int done = 0;
    hca::Cqe cqe;
    for (int i = 0; i < 64 && done < 2; ++i) {
      now += 100'000;
      fabric_step(none);
      while (sim::App::poll(good_cq, cqe)) {
        if (cqe.status != hca::WcStatus::success) __builtin_trap();
        ++done;
      }
    }
    if (done != 2) __builtin_trap();
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Bytes in{data, size};
  Scene scene(in.u8() % 2 == 0);
  for (int i = 0; i < 60 && in.left > 0; ++i) scene.step(in);
  scene.neighbour();
  return 0;
}
