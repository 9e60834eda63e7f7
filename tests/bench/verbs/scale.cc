// What a call costs beside few objects of its kind and beside very many: none may grow with their
// number. Two devices of one program (`flitnet exec n0,n1`), so that both ends are in one thread.
//
// Run by `./flitnet bench scale`.
#include <infiniband/verbs.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "emu/cli/command_line.h"

namespace {

constexpr std::uint32_t kMessageBytes = 64;
constexpr int kEnds = 2;
constexpr std::size_t kQpCounts[] = {1, 4, 16, 64, 256, 1000};
constexpr std::size_t kMrCounts[] = {1, 10, 100, 1000, 10'000};

[[noreturn]] void stop(const char* what) {
  std::fprintf(stderr, "scale_bench: %s (%s)\n", what, std::strerror(errno));
  std::exit(1);
}

void must(int error, const char* what) {
  if (error == 0) return;
  errno = error;
  stop(what);
}

template <class T>
T* made(T* object, const char* what) {
  if (object == nullptr) stop(what);
  return object;
}

std::uint64_t host_ns() {
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

// Medians of everything that was timed, by what it is and beside how many objects.
class Figures {
 public:
  template <class Work>
  auto time(const std::string& call, Work work) {
    const std::uint64_t begin = host_ns();
    auto result = work();
    add(call, host_ns() - begin);
    return result;
  }

  void add(const std::string& call, std::uint64_t ns) { timed_[call].push_back(ns); }

  void report(const char* objects, std::size_t count) {
    for (auto& [call, times] : timed_) {
      const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
      std::nth_element(times.begin(), middle, times.end());
      fmt::print("{:<14} beside {:>6} {:<4} {:>10.2f} us\n", call, count, objects,
                 static_cast<double>(*middle) / 1e3);
      json_ += fmt::format(
          "{}\n  {{\"call\": \"{}\", \"objects\": \"{}\", \"count\": {}, \"median_ns\": {}}}",
          json_.empty() ? "" : ",", call, objects, count, *middle);
    }
    std::fflush(stdout);
    timed_.clear();
  }

  std::string json() const { return fmt::format("{{\"results\": [{}\n]}}\n", json_); }

 private:
  std::map<std::string, std::vector<std::uint64_t>> timed_;
  std::string json_;
};

// One device, and what all queue pairs of it share.
struct End {
  ibv_context* context;
  ibv_pd* pd;
  ibv_cq* cq;
  ibv_mr* mr;
  ibv_port_attr port{};
  std::vector<char> memory = std::vector<char>(4096);

  explicit End(ibv_device* device) {
    context = made(ibv_open_device(device), "cannot open a device");
    pd = made(ibv_alloc_pd(context), "no PD");
    cq = made(ibv_create_cq(context, 1024, nullptr, nullptr, 0), "no CQ");
    mr = made(ibv_reg_mr(pd, memory.data(), memory.size(),
                         IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE),
              "no MR");
    must(ibv_query_port(context, 1, &port), "ibv_query_port");
  }
};

using Pair = std::array<ibv_qp*, kEnds>;

constexpr std::size_t at(int side) { return static_cast<std::size_t>(side); }

class Bench {
 public:
  explicit Bench(std::size_t repetitions, std::uint64_t seed)
      : repetitions_(repetitions), random_(seed) {
    int count = 0;
    ibv_device** devices = ibv_get_device_list(&count);
    if (count != kEnds) stop("needs two devices: run it by ./flitnet bench scale");
    for (int i = 0; i < kEnds; ++i) ends_.emplace_back(devices[i]);
    ibv_free_device_list(devices);
  }

  void queue_pairs() {
    std::vector<Pair> pairs;
    for (const std::size_t count : kQpCounts) {
      while (pairs.size() < count) {  // each is used once: its rings are in memory then
        pairs.push_back(connected(unnoticed_));
        message(pairs.back(), end(1).mr->rkey, end(1).memory.data(), unnoticed_);
      }
      for (std::size_t i = 0; i < repetitions_; ++i) {
        Pair extra = connected(figures_);
        for (ibv_qp* qp : extra) {
          must(figures_.time("destroy_qp", [&] { return ibv_destroy_qp(qp); }), "ibv_destroy_qp");
        }
        message(pairs[random_() % pairs.size()], end(1).mr->rkey, end(1).memory.data(), figures_);
      }
      figures_.report("QPs", count);
    }
    for (const Pair& pair : pairs) {
      for (ibv_qp* qp : pair) must(ibv_destroy_qp(qp), "ibv_destroy_qp");
    }
  }

  void regions() {
    const Pair pair = connected(unnoticed_);
    std::vector<ibv_mr*> regions;
    std::vector<char> memory(1 << 20);
    const auto add = [&](Figures& figures) {
      const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
      char* where = memory.data() + random_() % (memory.size() - kMessageBytes);
      return made(figures.time("reg_mr",
                               [&] { return ibv_reg_mr(end(1).pd, where, kMessageBytes, access); }),
                  "ibv_reg_mr");
    };
    for (const std::size_t count : kMrCounts) {
      while (regions.size() < count) regions.push_back(add(unnoticed_));
      for (std::size_t i = 0; i < repetitions_; ++i) {
        ibv_mr* extra = add(figures_);
        must(figures_.time("dereg_mr", [&] { return ibv_dereg_mr(extra); }), "ibv_dereg_mr");
        const ibv_mr* target = regions[random_() % regions.size()];
        message(pair, target->rkey, target->addr, figures_);
      }
      figures_.report("MRs", count);
    }
  }

  std::string json() const { return figures_.json(); }

 private:
  // A connected pair of queue pairs, one of each device.
  Pair connected(Figures& figures) {
    Pair pair{};
    for (int i = 0; i < kEnds; ++i) {
      ibv_qp_init_attr init{};
      init.send_cq = init.recv_cq = end(i).cq;
      init.cap = {4, 4, 1, 1, kMessageBytes};
      init.qp_type = IBV_QPT_RC;
      pair[at(i)] = made(figures.time("create_qp", [&] { return ibv_create_qp(end(i).pd, &init); }),
                         "ibv_create_qp");
    }
    for (int i = 0; i < kEnds; ++i) {
      figures.time("to_rts", [&] { return connect(pair[at(i)], i, *pair[at(1 - i)]), 0; });
    }
    return pair;
  }

  void connect(ibv_qp* qp, int side, const ibv_qp& peer) {
    ibv_qp_attr a{};
    a.qp_state = IBV_QPS_INIT;
    a.port_num = 1;
    a.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    must(
        ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
        "INIT");
    a.qp_state = IBV_QPS_RTR;
    a.path_mtu = end(side).port.active_mtu;
    a.dest_qp_num = peer.qp_num;
    a.max_dest_rd_atomic = 1;
    a.min_rnr_timer = 12;
    a.ah_attr.dlid = end(1 - side).port.lid;
    a.ah_attr.port_num = 1;
    must(ibv_modify_qp(qp, &a,
                       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                           IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
         "RTR");
    a.qp_state = IBV_QPS_RTS;
    a.timeout = 18;
    a.retry_cnt = 7;
    a.rnr_retry = 7;
    a.max_rd_atomic = 1;
    must(ibv_modify_qp(qp, &a,
                       IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                           IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
         "RTS");
  }

  // A SEND and an RDMA WRITE from the first device to the second, each to its completion.
  void message(const Pair& pair, std::uint32_t rkey, void* target, Figures& figures) {
    ibv_recv_wr receive{};
    ibv_sge room{reinterpret_cast<std::uint64_t>(end(1).memory.data()), kMessageBytes,
                 end(1).mr->lkey};
    receive.sg_list = &room;
    receive.num_sge = 1;
    ibv_recv_wr* bad_receive = nullptr;
    must(figures.time("post_recv", [&] { return ibv_post_recv(pair[1], &receive, &bad_receive); }),
         "ibv_post_recv");
    ibv_send_wr wr{};
    ibv_sge piece{reinterpret_cast<std::uint64_t>(end(0).memory.data()), kMessageBytes,
                  end(0).mr->lkey};
    wr.sg_list = &piece;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    run("send", pair, wr, figures);
    wait(end(1).cq);
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.wr.rdma = {reinterpret_cast<std::uint64_t>(target), rkey};
    run("write", pair, wr, figures);
  }

  void run(const std::string& name, const Pair& pair, ibv_send_wr& wr, Figures& figures) {
    ibv_send_wr* bad = nullptr;
    const std::uint64_t begin = host_ns();
    must(figures.time("post_" + name, [&] { return ibv_post_send(pair[0], &wr, &bad); }),
         "ibv_post_send");
    wait(end(0).cq);
    figures.add(name + "_done", host_ns() - begin);
    ibv_wc none;
    figures.time("poll_empty", [&] { return ibv_poll_cq(end(0).cq, 1, &none); });
  }

  End& end(int side) { return ends_[at(side)]; }

  static void wait(ibv_cq* cq) {
    ibv_wc wc{};
    int got = 0;
    while (got == 0) got = ibv_poll_cq(cq, 1, &wc);
    if (got < 0 || wc.status != IBV_WC_SUCCESS) stop(ibv_wc_status_str(wc.status));
  }

  std::size_t repetitions_;
  std::mt19937_64 random_;
  std::vector<End> ends_;
  Figures figures_, unnoticed_;
};

}  // namespace

int main(int argc, char** argv) {
  std::string json;
  bool quick = false;
  emu::CommandLine line("What calls cost beside many objects");
  line.option("--json", json, "Write the figures to this file");
  line.flag("--quick", quick, "Fewer repetitions");
  if (const auto code = line.parse(argc, argv)) return *code;
  Bench bench(quick ? 50 : 400, 1);
  bench.queue_pairs();
  bench.regions();
  if (json.empty()) return 0;
  std::FILE* file = std::fopen(json.c_str(), "w");
  if (file == nullptr) stop(json.c_str());
  const std::string text = bench.json();
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (std::fclose(file) != 0 || !written) stop(json.c_str());
}
