// The node's socket: programs open the device here and ask for objects (hca/abi/control.h).
// Requests go to hca/host; the memory behind rings is made here. Also the events that hca/host has
// for programs. A program that breaks the protocol loses its connection, nothing else.
#pragma once

#include <cerrno>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "emu/base/log_limit.h"
#include "emu/base/result.h"
#include "emu/config/config.h"
#include "emu/ring/fd.h"
#include "emu/ring/region.h"
#include "hca/daemon/client.h"
#include "hca/daemon/cm_service.h"
#include "hca/daemon/mad_service.h"
#include "hca/daemon/memory.h"
#include "hca/daemon/recall.h"
#include "hca/host/events.h"
#include "hca/host/host.h"

namespace hca {

class Control : public HostEvents {
 public:
  static emu::Result<std::unique_ptr<Control>> open(const std::string& socket_path,
                                                    const emu::Region& node_page,
                                                    ProcessMemory& memory);
  ~Control() override;

  // The host that the requests go to; before the first service().
  void set_host(Host& host) { host_ = &host; }
  // What the log calls the nodes; stays where it is.
  void set_nodes(std::span<const emu::NodeConfig> nodes) { nodes_ = nodes; }
  void set_cm(CmService& cm) { cm_ = &cm; }           // without one, rdma_cm is refused
  void set_mads(MadService& mads) { mads_ = &mads; }  // without one, umad is
  // The port's counter that the kernel would show in a file of that name; none: not ours to tell.
  using ReadCounter = std::function<std::optional<std::uint64_t>(std::string_view file)>;
  void set_counters(ReadCounter read) { read_counter_ = std::move(read); }

  // Readable when there is something to service: new programs, requests, ends.
  int fd() const { return epoll_.get(); }
  void service(emu::Cycle now);

  // Hands rung doorbells to the host. Returns whether there was one.
  bool doorbells(emu::Cycle now);
  // Says that hcad sleeps; false: a doorbell rings already. awake() takes it back; `rung`:
  // doorbell_fd() was readable.
  bool prepare_sleep();
  void awake(bool rung);
  int doorbell_fd() const { return doorbell_fd_.get(); }

  // To every program that has the device open.
  void port_event(AsyncEvent event);

  std::size_t client_count() const { return clients_.size(); }

  // Whether a program that slept was woken since the last call.
  bool woke() { return std::exchange(woke_, false); }

  // HostEvents
  void completion(ClientId client, std::uint32_t cq) override;
  void wake_cq(ClientId client, std::uint32_t cq) override;
  void async(ClientId client, AsyncEvent event, std::uint32_t number) override;
  void admission(ClientId client, std::uint32_t qpn, const AdmissionOutcome& outcome) override;
  void mad(emu::NodeId source, const Mad& bytes) override;
  void subnet_mad(emu::Lid from, std::uint32_t qpn, std::span<const std::uint8_t> mad) override;
  void trouble(const Trouble& trouble) override;

 private:
  Control(std::string path, const emu::Region& node_page, ProcessMemory& memory);
  struct Incoming;

  void accept_all();
  void admit(emu::UniqueFd socket);
  bool out_of_descriptors() const;
  int no_room() const { return out_of_descriptors() ? EMFILE : ENOMEM; }  // for a region
  bool make_room();
  bool evict_silent();
  int take_file(Client& client);  // the limits of files: 0 or an errno; close() gives it back
  bool served(Client& client, emu::Cycle now);
  bool serve(Client& client, emu::Cycle now);  // false: it has gone or must go
  void close(Client& client);
  void leave(Client& client);  // its objects go, and our way to its memory
  Client* find(ClientId id);

  // Each fills in the reply and returns an errno; fds to send along go into `reply_fds_`.
  int handle(Client& client, Incoming& in, emu::Cycle now, ControlReply& reply);
  int handle_usual(Client& client, Incoming& in, emu::Cycle now, ControlReply& reply);
  int handle_rare(Client& client, Incoming& in, ControlReply& reply);
  int hello(Client& client, Incoming& in, ControlReply& reply);
  int register_mr(Client& client, Incoming& in, ControlReply& reply);
  int deregister_mr(Client& client, const ControlRequest& request);
  int create_channel(Client& client, Incoming& in, ControlReply& reply);
  int create_cq(Client& client, const ControlRequest& request, ControlReply& reply);
  int resize_cq(Client& client, const ControlRequest& request);
  int adopt_cq(Client& client, const ControlRequest& request);
  int destroy_cq(Client& client, const ControlRequest& request);
  int create_qp(Client& client, const ControlRequest& request, ControlReply& reply);
  int open_qp(Client& client, const ControlRequest& request, ControlReply& reply);
  int destroy_qp(Client& client, const ControlRequest& request);
  int create_srq(Client& client, const ControlRequest& request, ControlReply& reply);
  int destroy_srq(Client& client, const ControlRequest& request);
  void recall(Client::EventPipe& pipe, const std::function<bool(const EventRecord&)>& gone);
  void recall_async(Client& client, AsyncSource source, std::uint32_t number);
  bool tell(Client::EventPipe& pipe, const EventRecord& record);  // false: it is lost
  void write_unread(Client::EventPipe& pipe);                     // what there is room for
  void has_room(int pipe);
  void unwatch_events(int pipe);
  int open_xrcd(Client& client, Incoming& in, ControlReply& reply);
  int close_xrcd(Client& client, std::uint32_t xrcd);
  int set_rate(Client& client, const ControlRequest& request, emu::Cycle now);
  bool speaks_our_version(const Client& client, const ControlHello& hello);
  int open_cm(Client& client, Incoming& in, ControlReply& reply);
  int open_umad(Client& client, Incoming& in);
  int read_counter(const Client& client, const ControlCounter& counter, ControlReply& reply);
  bool serve_umad(Client& client, std::span<const std::byte> message, Incoming& in);
  bool serve_cm(Client& client, std::span<const std::byte> command, emu::Cycle now);
  bool send_reply(Client& client, const ControlReply& reply);
  void hand_over(emu::UniqueFd fd);        // goes with the reply, then it is the program's alone
  void complain(const std::string& line);  // in the log, but not for ever

  std::string path_;
  const emu::Region& node_page_;
  ProcessMemory& memory_;
  Host* host_ = nullptr;
  CmService* cm_ = nullptr;
  MadService* mads_ = nullptr;
  ReadCounter read_counter_;
  emu::UniqueFd listener_;
  emu::UniqueFd epoll_;
  emu::UniqueFd doorbell_fd_;
  emu::UniqueFd spare_;  // given up for who comes when there is no other descriptor
  std::unordered_map<int, std::unique_ptr<Client>> clients_;  // by the descriptor of its socket
  std::vector<Client*> devices_;                              // those that said hello
  std::unordered_map<pid_t, std::uint32_t> files_of_;         // rdma_cm and umad, by program
  std::size_t file_count_ = 0;                                // of them all
  std::uint64_t next_client_ = 1;
  std::vector<Client*> by_id_;  // by ClientId
  std::vector<int> reply_fds_;
  std::vector<emu::UniqueFd> reply_owned_;  // closed once the reply is out
  // Programs can be wrong as often as they like: 20 lines at once, then six a minute.
  emu::LogLimit complaints_{20, 10'000'000'000};
  // Of requests, whose failures are told apart from these: a peer's repetitions once.
  emu::LogLimit troubles_{100, 1'000'000'000};
  Trouble last_trouble_;
  std::span<const emu::NodeConfig> nodes_;
  bool rung_ = false;  // doorbell_fd_ is to be drained
  bool woke_ = false;
};

}  // namespace hca
