// What is built parses back to the same; what is broken is refused; tshark reads the same fields.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "emu/base/prng.h"
#include "emu/packet/build.h"
#include "emu/packet/crc.h"
#include "emu/packet/parse.h"

namespace {

using emu::Opcode;
using emu::PacketHeaders;
using emu::ParsedPacket;
using emu::ParseStatus;
using emu::Prng;

std::uint64_t fresh_seed() {
  const std::uint64_t seed = std::random_device{}();
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  return seed;
}

std::vector<Opcode> known_opcodes() {
  std::vector<Opcode> known;
  for (int i = 0; i < 256; ++i) {
    if (emu::opcode_info(static_cast<Opcode>(i)).known) known.push_back(static_cast<Opcode>(i));
  }
  return known;
}

PacketHeaders random_headers(Prng& random, Opcode opcode) {
  PacketHeaders h;
  const auto word = [&] { return static_cast<std::uint32_t>(random()); };
  h.lrh = {static_cast<emu::Vl>(random.below(16)), static_cast<std::uint8_t>(random.below(16)),
           static_cast<emu::Lid>(word()), static_cast<emu::Lid>(word())};
  h.has_grh = random.below(2) == 0;
  h.grh.traffic_class = static_cast<std::uint8_t>(word());
  h.grh.flow_label = word() & 0xfffff;
  h.grh.hop_limit = static_cast<std::uint8_t>(word());
  for (auto& b : h.grh.sgid) b = static_cast<std::uint8_t>(word());
  for (auto& b : h.grh.dgid) b = static_cast<std::uint8_t>(word());
  h.bth = {.opcode = opcode,
           .solicited = random.below(2) == 0,
           .migrated = random.below(2) == 0,
           .fecn = random.below(2) == 0,
           .becn = random.below(2) == 0,
           .ack_request = random.below(2) == 0,
           .pkey = static_cast<std::uint16_t>(word()),
           .dest_qp = word() & emu::kMask24,
           .psn = word() & emu::kMask24};
  h.deth = {word(), word() & emu::kMask24};
  h.reth = {random(), word(), word()};
  h.atomic = {random(), word(), random(), random()};
  h.aeth = {static_cast<std::uint8_t>(word()), word() & emu::kMask24};
  h.atomic_original = random();
  h.immediate = word();
  h.invalidate_rkey = word();
  h.xrc_srq = word() & emu::kMask24;
  return h;
}

std::vector<std::byte> build(const PacketHeaders& h, std::span<const std::byte> payload) {
  std::vector<std::byte> slot(4352);
  const std::size_t at = emu::write_headers(slot, h, payload.size());
  std::copy(payload.begin(), payload.end(), slot.begin() + static_cast<std::ptrdiff_t>(at));
  slot.resize(emu::seal_packet(slot, at + payload.size()));
  return slot;
}

std::vector<std::byte> random_payload(Prng& random, const PacketHeaders& h) {
  std::vector<std::byte> payload(emu::opcode_info(h.bth.opcode).payload ? random.below(4097) : 0);
  for (auto& b : payload) b = static_cast<std::byte>(random());
  return payload;
}

void expect_same(const PacketHeaders& a, const PacketHeaders& b) {
  const std::uint8_t which = emu::opcode_info(a.bth.opcode).headers;
  EXPECT_EQ(a.lrh.vl, b.lrh.vl);
  EXPECT_EQ(a.lrh.sl, b.lrh.sl);
  EXPECT_EQ(a.lrh.dlid, b.lrh.dlid);
  EXPECT_EQ(a.lrh.slid, b.lrh.slid);
  EXPECT_EQ(a.has_grh, b.has_grh);
  if (a.has_grh) {
    EXPECT_EQ(a.grh.traffic_class, b.grh.traffic_class);
    EXPECT_EQ(a.grh.flow_label, b.grh.flow_label);
    EXPECT_EQ(a.grh.hop_limit, b.grh.hop_limit);
    EXPECT_EQ(a.grh.sgid, b.grh.sgid);
    EXPECT_EQ(a.grh.dgid, b.grh.dgid);
  }
  EXPECT_EQ(a.bth.opcode, b.bth.opcode);
  EXPECT_EQ(a.bth.solicited, b.bth.solicited);
  EXPECT_EQ(a.bth.migrated, b.bth.migrated);
  EXPECT_EQ(a.bth.fecn, b.bth.fecn);
  EXPECT_EQ(a.bth.becn, b.bth.becn);
  EXPECT_EQ(a.bth.ack_request, b.bth.ack_request);
  EXPECT_EQ(a.bth.pkey, b.bth.pkey);
  EXPECT_EQ(a.bth.dest_qp, b.bth.dest_qp);
  EXPECT_EQ(a.bth.psn, b.bth.psn);
  if ((which & emu::kDeth) != 0) {
    EXPECT_EQ(a.deth.qkey, b.deth.qkey);
    EXPECT_EQ(a.deth.src_qp, b.deth.src_qp);
  }
  if ((which & emu::kReth) != 0) {
    EXPECT_EQ(a.reth.address, b.reth.address);
    EXPECT_EQ(a.reth.rkey, b.reth.rkey);
    EXPECT_EQ(a.reth.length, b.reth.length);
  }
  if ((which & emu::kAtomicEth) != 0) {
    EXPECT_EQ(a.atomic.address, b.atomic.address);
    EXPECT_EQ(a.atomic.rkey, b.atomic.rkey);
    EXPECT_EQ(a.atomic.swap_or_add, b.atomic.swap_or_add);
    EXPECT_EQ(a.atomic.compare, b.atomic.compare);
  }
  if ((which & emu::kAeth) != 0) {
    EXPECT_EQ(a.aeth.syndrome, b.aeth.syndrome);
    EXPECT_EQ(a.aeth.msn, b.aeth.msn);
  }
  if ((which & emu::kAtomicAckEth) != 0) {
    EXPECT_EQ(a.atomic_original, b.atomic_original);
  }
  if ((which & emu::kImmDt) != 0) {
    EXPECT_EQ(a.immediate, b.immediate);
  }
  if ((which & emu::kIeth) != 0) {
    EXPECT_EQ(a.invalidate_rkey, b.invalidate_rkey);
  }
  if ((which & emu::kXrcEth) != 0) {
    EXPECT_EQ(a.xrc_srq, b.xrc_srq);
  }
}

TEST(Packet, EveryOpcodeComesBack) {
  Prng random(fresh_seed());
  EXPECT_EQ(known_opcodes().size(), 62u);
  for (const Opcode opcode : known_opcodes()) {
    for (int round = 0; round < 20; ++round) {
      const PacketHeaders h = random_headers(random, opcode);
      const auto payload = random_payload(random, h);
      const auto packet = build(h, payload);
      ASSERT_EQ(packet.size(), emu::packet_bytes(opcode, h.has_grh, payload.size()));
      ASSERT_EQ(emu::check_crcs(packet), emu::CrcStatus::ok);
      ParsedPacket parsed;
      ASSERT_EQ(emu::parse_packet(packet, parsed), ParseStatus::ok);
      expect_same(h, parsed.headers);
      ASSERT_EQ(parsed.payload_bytes, payload.size());
      ASSERT_TRUE(std::equal(payload.begin(), payload.end(),
                             packet.begin() + static_cast<std::ptrdiff_t>(parsed.payload_offset)));
    }
  }
}

// A full RC packet of the papers is exactly 40 flits of 16 bytes.
TEST(Packet, AFullRcPacketIsFortyFlits) {
  EXPECT_EQ(emu::rc_payload_bytes_max(40, 128, 2048), 612u);
  EXPECT_EQ(emu::packet_bytes(Opcode::rc_send_middle, false, 612), 638u);
  EXPECT_EQ(emu::flits_of(638, 128), 40);
  EXPECT_EQ(emu::rc_payload_bytes_max(40, 128, 256), 256u);
  EXPECT_EQ(emu::flits_of(0, 128), 1);
  EXPECT_EQ(emu::flits_of(17, 128), 2);
  // The largest packet fits a slot.
  EXPECT_LE(emu::packet_bytes(Opcode::rc_write_only_imm, true, 4096), 4352u);
}

TEST(Packet, LaneChangesWithoutTheIcrc) {
  Prng random(fresh_seed());
  auto packet = build(random_headers(random, Opcode::rc_send_only), {});
  for (emu::Vl vl = 0; vl < 16; ++vl) {
    emu::set_vl(packet, vl);
    ASSERT_EQ(emu::check_crcs(packet), emu::CrcStatus::ok);
    ParsedPacket parsed;
    ASSERT_EQ(emu::parse_packet(packet, parsed), ParseStatus::ok);
    EXPECT_EQ(parsed.headers.lrh.vl, vl);
  }
}

TEST(Packet, EveryFlippedBitIsNoticed) {
  Prng random(fresh_seed());
  auto packet = build(random_headers(random, Opcode::rc_write_only), std::vector<std::byte>(40));
  for (std::size_t bit = 0; bit < packet.size() * 8; ++bit) {
    packet[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    ASSERT_NE(emu::check_crcs(packet), emu::CrcStatus::ok) << bit;
    packet[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
  }
  // A switch that changed something else and made the VCRC anew is caught by the ICRC.
  packet[20] ^= std::byte{1};
  const std::uint16_t vcrc = emu::vcrc_of(std::span(packet).first(packet.size() - 2));
  packet[packet.size() - 2] = static_cast<std::byte>(vcrc);
  packet[packet.size() - 1] = static_cast<std::byte>(vcrc >> 8);
  EXPECT_EQ(emu::check_crcs(packet), emu::CrcStatus::bad_icrc);
}

TEST(Packet, CrcsThatWereLeftOutAreMadeUpFor) {
  Prng random(fresh_seed());
  for (const Opcode opcode : known_opcodes()) {
    const PacketHeaders h = random_headers(random, opcode);
    const auto payload = random_payload(random, h);
    const auto sealed = build(h, payload);
    EXPECT_TRUE(emu::has_crcs(sealed));
    std::vector<std::byte> packet = sealed;
    const std::size_t end = emu::headers_bytes(opcode, h.has_grh) + payload.size();
    ASSERT_EQ(emu::pad_packet(packet, end), sealed.size());
    EXPECT_FALSE(emu::has_crcs(packet));
    ParsedPacket parsed;
    ASSERT_EQ(emu::parse_packet(packet, parsed), ParseStatus::ok);
    emu::add_left_crcs(packet);
    ASSERT_EQ(packet, sealed);
    packet.back() ^= std::byte{1};  // wrong ones are not mended
    const std::vector<std::byte> wrong = packet;
    emu::add_left_crcs(packet);
    ASSERT_EQ(packet, wrong);
  }
}

// The parts of a message, by the names that the IBA gives them.
TEST(Packet, AMessageHasParts) {
  using enum Opcode;
  struct Parts {
    Opcode only, first, middle, last;
  };
  constexpr Parts kParts[] = {
      {rc_send_only, rc_send_first, rc_send_middle, rc_send_last},
      {rc_send_only_imm, rc_send_first, rc_send_middle, rc_send_last_imm},
      {rc_send_only_inv, rc_send_first, rc_send_middle, rc_send_last_inv},
      {rc_write_only, rc_write_first, rc_write_middle, rc_write_last},
      {rc_write_only_imm, rc_write_first, rc_write_middle, rc_write_last_imm},
      {rc_read_response_only, rc_read_response_first, rc_read_response_middle,
       rc_read_response_last},
  };
  for (const Parts& parts : kParts) {
    for (const bool xrc : {false, true}) {
      const auto of = [xrc](Opcode opcode) { return xrc ? emu::xrc_of(opcode) : opcode; };
      const Opcode only = of(parts.only);
      EXPECT_EQ(emu::part_of(only, true, true), only);
      EXPECT_EQ(emu::part_of(only, true, false), of(parts.first));
      EXPECT_EQ(emu::part_of(only, false, false), of(parts.middle));
      EXPECT_EQ(emu::part_of(only, false, true), of(parts.last));
      // Of a piece: what it does not begin with or end with is in none of its parts.
      EXPECT_EQ(emu::part_of(of(parts.first), true, true), of(parts.first));
      EXPECT_EQ(emu::part_of(of(parts.first), false, true), of(parts.middle));
      EXPECT_EQ(emu::part_of(of(parts.middle), true, true), of(parts.middle));
      EXPECT_EQ(emu::part_of(of(parts.last), true, true), of(parts.last));
      EXPECT_EQ(emu::part_of(of(parts.last), true, false), of(parts.middle));
    }
  }
  EXPECT_EQ(emu::part_of(uc_write_only_imm, false, true), uc_write_last_imm);
}

// A train is cut into packets that are whole, follow one another and together bring its payload.
TEST(Packet, ATrainComesApart) {
  Prng random(fresh_seed());
  for (const Opcode opcode : known_opcodes()) {
    const emu::OpcodeInfo& info = emu::opcode_info(opcode);
    if (!emu::has_parts(opcode)) continue;
    for (int round = 0; round < 20; ++round) {
      const PacketHeaders h = random_headers(random, opcode);
      const std::uint32_t full = 4 * (1 + random.below(1024));
      const std::uint32_t packets = 2 + random.below(15);
      const std::uint32_t bytes = full * (packets - 1) + 1 + random.below(full);
      std::vector<std::byte> train(emu::kTrainHeadBytes + bytes + emu::pad_of(bytes));
      emu::write_train_headers(std::span(train).first<emu::kTrainHeadBytes>(), h, bytes, full);
      for (std::size_t i = 0; i < bytes; ++i)
        train[emu::kTrainHeadBytes + i] = static_cast<std::byte>(random());
      ParsedPacket whole;
      ASSERT_EQ(emu::parse_train(train, packets, whole), ParseStatus::ok);
      ASSERT_EQ(whole.payload_bytes, bytes);
      ASSERT_EQ(whole.full_payload_bytes, full);
      EXPECT_NE(emu::parse_train(train, packets + 1, whole), ParseStatus::ok);
      EXPECT_NE(emu::parse_train(train, packets - 1, whole), ParseStatus::ok);
      ASSERT_EQ(emu::parse_train(train, packets, whole), ParseStatus::ok);
      expect_same(h, whole.headers);
      std::size_t at = emu::kTrainHeadBytes;
      for (std::uint32_t i = 0; i < packets; ++i) {
        std::vector<std::byte> slot(4352);
        slot.resize(emu::cut_packet(train, whole, i, slot));
        ParsedPacket part;
        ASSERT_EQ(emu::parse_packet(slot, part), ParseStatus::ok);
        const bool last = i + 1 == packets;
        EXPECT_EQ(part.headers.bth.psn, emu::psn_add(h.bth.psn, i));
        EXPECT_EQ(part.info->first, info.first && i == 0);
        EXPECT_EQ(part.info->last, info.last && last);
        EXPECT_EQ(part.headers.bth.ack_request, h.bth.ack_request && last);
        EXPECT_EQ(part.headers.bth.solicited, h.bth.solicited && last);
        ASSERT_EQ(part.payload_bytes, last ? bytes - i * full : full);
        ASSERT_EQ(std::memcmp(&slot[part.payload_offset], &train[at], part.payload_bytes), 0);
        at += part.payload_bytes;
      }
    }
  }
}

TEST(Packet, WhatIsTooShortForCrcsStaysAsItIs) {
  for (std::size_t n = 0; n < 66; ++n) {
    std::vector<std::byte> packet(n);
    if (n > 1) packet[1] = std::byte{3};  // says that it has a GRH
    const std::vector<std::byte> before = packet;
    emu::add_left_crcs(packet);
    EXPECT_EQ(packet, before) << n;
  }
}

TEST(Packet, EveryTruncationIsRefused) {
  Prng random(fresh_seed());
  for (const Opcode opcode : known_opcodes()) {
    PacketHeaders h = random_headers(random, opcode);
    const auto packet = build(h, {});
    ParsedPacket parsed;
    for (std::size_t n = 0; n < packet.size(); ++n) {
      ASSERT_NE(emu::parse_packet(std::span(packet).first(n), parsed), ParseStatus::ok);
      ASSERT_NE(emu::check_crcs(std::span(packet).first(n)), emu::CrcStatus::ok);
    }
  }
}

// Random bytes and mutations: whatever is accepted lies inside the bytes given (the sanitizers see
// the rest).
TEST(Packet, JunkIsRefusedOrStaysInside) {
  Prng random(fresh_seed());
  const auto opcodes = known_opcodes();
  int accepted = 0;
  for (int round = 0; round < 20'000; ++round) {
    const auto opcode = opcodes[random.below(static_cast<std::uint32_t>(opcodes.size()))];
    const std::size_t payload = emu::opcode_info(opcode).payload ? random.below(3) : 0;
    auto packet = build(random_headers(random, opcode), std::vector<std::byte>(payload));
    for (std::uint32_t edits = random.below(4); edits > 0; --edits) {
      packet[random.below(static_cast<std::uint32_t>(std::min<std::size_t>(packet.size(), 64)))] =
          static_cast<std::byte>(random());
    }
    ParsedPacket parsed;
    if (emu::parse_packet(packet, parsed) != ParseStatus::ok) continue;
    ++accepted;
    ASSERT_LE(parsed.payload_offset + parsed.payload_bytes + 6, packet.size());
  }
  EXPECT_GT(accepted, 1000);
}

TEST(Psn, LivesOnACircle) {
  EXPECT_EQ(emu::psn_add(0xffffff, 2), 1u);
  EXPECT_EQ(emu::psn_diff(1, 0xffffff), 2);
  EXPECT_EQ(emu::psn_diff(0xffffff, 1), -2);
  EXPECT_EQ(emu::psn_diff(5, 5), 0);
  EXPECT_EQ(emu::psn_diff(0x800000, 0), -0x800000);
}

TEST(Opcode, TableIsThatOfTheIba) {
  const auto info = [](Opcode opcode) { return emu::opcode_info(opcode); };
  EXPECT_EQ(info(Opcode::rc_write_only_imm).headers, emu::kReth | emu::kImmDt);
  EXPECT_EQ(info(Opcode::ud_send_only_imm).headers, emu::kDeth | emu::kImmDt);
  EXPECT_EQ(info(Opcode::rc_read_response_middle).headers, 0);
  EXPECT_EQ(info(Opcode::rc_atomic_ack).headers, emu::kAeth | emu::kAtomicAckEth);
  EXPECT_TRUE(info(Opcode::rc_write_last_imm).consumes_recv);
  EXPECT_FALSE(info(Opcode::rc_write_last).consumes_recv);
  EXPECT_TRUE(info(Opcode::rc_send_last_inv).consumes_recv);
  EXPECT_FALSE(info(Opcode::rc_read_request).payload);
  EXPECT_EQ(info(Opcode::uc_write_first).service, emu::Service::uc);
  EXPECT_TRUE(info(Opcode::uc_write_first).first);
  EXPECT_FALSE(info(Opcode::uc_write_first).last);
  // XRC: RC's, the requests with the number of an SRQ in front (IBA annex A14).
  EXPECT_EQ(static_cast<int>(emu::xrc_of(Opcode::rc_send_only)), 0xa4);
  EXPECT_EQ(info(emu::xrc_of(Opcode::rc_write_first)).headers, emu::kXrcEth | emu::kReth);
  EXPECT_EQ(info(emu::xrc_of(Opcode::rc_send_middle)).headers, emu::kXrcEth);
  EXPECT_EQ(info(emu::xrc_of(Opcode::rc_ack)).headers, emu::kAeth);
  EXPECT_EQ(info(emu::xrc_of(Opcode::rc_ack)).service, emu::Service::xrc);
  EXPECT_EQ(emu::rnr_timer_ns(1), 10'000u);
  EXPECT_EQ(emu::rnr_timer_ns(0), 655'360'000u);
  EXPECT_EQ(emu::rnr_timer_ns(31), 491'520'000u);
}

// Runs a command and returns what it printed; empty if it failed.
std::string output_of(const std::string& command) {
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return "";
  std::string text;
  std::array<char, 4096> buffer{};
  for (std::size_t n = 0; (n = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
    text.append(buffer.data(), n);
  }
  return pclose(pipe) == 0 ? text : "";
}

void append_le(std::string& out, std::uint32_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
}

TEST(Packet, TsharkReadsTheSameFields) {
  if (output_of("tshark --version 2>/dev/null").empty()) GTEST_SKIP() << "tshark is not installed";
  char pattern[] = "/tmp/flitnet-test-XXXXXX";
  const std::string dir = mkdtemp(pattern);
  Prng random(fresh_seed());
  std::string pcap;
  // LINKTYPE_ERF (197): tshark 4.0 does not know LINKTYPE_INFINIBAND (247).
  for (const auto& [value, bytes] :
       {std::pair{0xa1b2c3d4u, 4}, {2u, 2}, {4u, 2}, {0u, 4}, {0u, 4}, {65535u, 4}, {197u, 4}}) {
    append_le(pcap, value, bytes);
  }
  std::string want;
  for (const Opcode opcode : known_opcodes()) {
    PacketHeaders h = random_headers(random, opcode);
    h.bth.dest_qp |= 2;  // QP0 and QP1 would be taken for management
    h.lrh.dlid &= 0x3fff;
    const std::vector<std::byte> payload(emu::opcode_info(opcode).payload ? 13 : 0);
    const auto packet = build(h, payload);
    const auto size = static_cast<std::uint16_t>(packet.size());
    for (const std::uint32_t word : {0u, 0u, size + 16u, size + 16u}) append_le(pcap, word, 4);
    // ERF: time, type 21 (InfiniBand), flags; record length, loss, wire length big endian.
    append_le(pcap, 0, 4);
    append_le(pcap, 0, 4);
    append_le(pcap, 21, 2);
    append_le(pcap, __builtin_bswap16(static_cast<std::uint16_t>(size + 16)), 2);
    append_le(pcap, 0, 2);
    append_le(pcap, __builtin_bswap16(size), 2);
    pcap.append(reinterpret_cast<const char*>(packet.data()), packet.size());
    std::uint32_t icrc = 0;  // shown as it stands on the wire, highest byte first
    for (std::size_t i = packet.size() - 6; i < packet.size() - 2; ++i) {
      icrc = icrc << 8 | std::to_integer<std::uint32_t>(packet[i]);
    }
    want += fmt::format("0x{:02x}\t{}\t{}\t{}\t0x{:06x}\t{}\t", h.lrh.vl, h.lrh.sl, h.lrh.dlid,
                        static_cast<int>(opcode), h.bth.dest_qp, h.bth.psn);
    // tshark 4.0 does not know what follows the BTH of XRC and of atomic writes, nor where it ends.
    const bool unknown =
        emu::opcode_info(opcode).service == emu::Service::xrc || opcode == Opcode::rc_atomic_write;
    want += unknown ? "\n" : fmt::format("0x{:08x}\n", icrc);
  }
  std::ofstream(dir + "/a.pcap", std::ios::binary) << pcap;
  const std::string got = output_of(
      "tshark -r " + dir +
      "/a.pcap -T fields -e infiniband.lrh.vl -e infiniband.lrh.sl -e infiniband.lrh.dlid -e "
      "infiniband.bth.opcode -e infiniband.bth.destqp -e infiniband.bth.psn -e "
      "infiniband.invariant.crc 2>/dev/null");
  EXPECT_EQ(got, want);
  const std::string malformed =
      output_of("tshark -r " + dir + "/a.pcap -Y _ws.malformed 2>/dev/null && echo done");
  EXPECT_EQ(malformed, "done\n");
  std::filesystem::remove_all(dir);
}

}  // namespace
