// What an event costs (ACP table 1, 180 nm) and what follows from it: energy of a flit in a router,
// of a packet on its way, and the time until its energy budget comes back (ACP section 5).
#pragma once

#include <cstdint>

#include "emu/base/units.h"

namespace emu {

struct EnergyTable {
  double buffer_read_pj = 31.125;   // per flit, input and output buffer alike
  double buffer_write_pj = 27.075;  // per flit
  double arbitration_pj = 6.10086;  // per arbitration; one per flit (crossbar input multiplexer)
  double crossbar_pj = 68.475;      // per flit
  double link_pj_per_bit = 10.21;   // links between routers
  // The paper prints no figures for its HCA. 0: the cap and the budgets speak of routers and links
  // only, as the paper's formulas do.
  double hca_flit_pj = 0;
  std::uint32_t flit_bits = 128;
  // The HCA's own power, beside the cap (ACP 3.4 names its parts and prints no figures). Its core,
  // a packet sent or received: 200 cycles of a StrongARM 1100, 230 mW at 133 MHz. Its local memory,
  // a byte written or read: an SDRAM of 16 bit at 133 MHz, 140 mA at 3.3 V.
  double hca_core_pj = 346'000;
  double hca_memory_pj_per_byte = 1740;

  // A packet at one HCA: the core, and a WQE of 64 bytes in the doorbell queue, in and out.
  constexpr double hca_packet_pj() const { return hca_core_pj + 2 * 64 * hca_memory_pj_per_byte; }
  // A flit at one HCA: in and out of local memory, in and out of a VL buffer (the DMA's work), and
  // one decision of the VL arbiter.
  constexpr double hca_own_flit_pj() const {
    return 2 * hca_memory_pj_per_byte * flit_bits / 8 + buffer_write_pj + buffer_read_pj +
           arbitration_pj;
  }

  // One flit through one router: written to and read from the input and the output buffer.
  constexpr double router_flit_pj() const {
    return 2 * buffer_read_pj + 2 * buffer_write_pj + arbitration_pj + crossbar_pj;
  }
  // One flit over one link between routers. The links to the HCAs are the HCA's (hca_flit_pj).
  constexpr double link_flit_pj() const { return link_pj_per_bit * flit_bits; }

  // E_packet = (E_router (D + 1) + E_link D) N. `hops` is D, the number of links between routers:
  // 0 in a cluster of one router.
  constexpr double packet_pj(std::uint32_t hops, std::uint32_t flits) const {
    return (router_flit_pj() * (hops + 1) + link_flit_pj() * hops + 2 * hca_flit_pj) * flits;
  }
};

// L_packet = ((D + 1) S - 1) + N + W_hca: cycles after which the energy of a packet is given back.
// S: cycles of one router and its link.
constexpr Cycle packet_cycles(std::uint32_t hops, std::uint32_t flits, std::uint32_t hop_cycles,
                              Cycle hca_wait_cycles) {
  return (Cycle{hops} + 1) * hop_cycles - 1 + flits + hca_wait_cycles;
}

// Watts of `flits_per_second` flits, each costing `flit_pj`.
constexpr double watts(double flits_per_second, double flit_pj) {
  return flits_per_second * flit_pj * 1e-12;
}

}  // namespace emu
