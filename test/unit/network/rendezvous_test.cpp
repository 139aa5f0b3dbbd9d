// Processes that meet, as threads over the loopback interface, among unauthenticated.
#include "runtime/engine/comm/socket_link.h"
#include "runtime/engine/comm/tcp/address.h"
#include "runtime/engine/comm/tcp/rendezvous.h"
#include "runtime/engine/comm/transport.h"
#include <arpa/inet.h>
#include <deque>
#include <functional>
#include <gmock/gmock.h>
#include <memory>
#include <netinet/in.h>
#include <sodium.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

namespace cleave::runtime::tcp {
namespace {

// A port below the kernel's range that nobody listens at.
int freePort() {
  static int turn = 0;
  for (;; ++turn) {
    int port = 10000 + (::getpid() * 16 + turn) % 20000;
    Result<std::vector<Address>> here = resolve("127.0.0.1", port);
    int socket = listenAt(here->front());
    if (socket < 0) continue;
    ::close(socket);
    ++turn;
    return port;
  }
}

int connectTo(int port) {
  int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  for (int turn = 0; turn < 1000; ++turn) {
    if (::connect(socket, reinterpret_cast<sockaddr *>(&to), sizeof to) == 0) return socket;
    ::usleep(5000);
  }
  ::close(socket);
  return -1;
}

// A rank that meets the others, and then connects to those that it needs.
struct Process {
  Network network;
  std::unique_ptr<Rendezvous> rendezvous;
  std::atomic<int64_t> moved{0};
  std::unique_ptr<StreamEndpoint> tree;
  AbortFlag abort;
  std::unique_ptr<ControlPlane> control;
  Status outcome;
  const std::string &message() const { return outcome.message(); }

  Status meet(const Launch &launch, const std::string &plan) {
    rendezvous = std::make_unique<Rendezvous>(launch, network, plan);
    CLEAVE_RETURN_IF_ERROR(rendezvous->meet());
    tree = std::make_unique<StreamEndpoint>(
        StreamEndpoint::Place{launch.rank, launch.size, Transport::controlLane, rendezvous->run()}, moved);
    for (int peer : neighboursOf(launch.rank, launch.size))
      tree->setLink(peer, std::make_unique<SocketLink>(rendezvous->take({Transport::controlLane, peer})));
    control = std::make_unique<ControlPlane>(*tree, abort);
    return rendezvous->confirm(*tree, *control);
  }
};

struct Party {
  int size = 4, port = freePort();
  std::string host = "127.0.0.1";
  double seconds = 60;
  std::vector<int> secrets = std::vector<int>(64, 1);
  std::vector<std::string> plans = std::vector<std::string>(64, "plan"), jobs = std::vector<std::string>(64);
  // Pairs that the rank needs when it has met the others, in turn.
  std::function<std::vector<std::vector<Rendezvous::Pair>>(int rank)> needs = [](int) {
    return std::vector<std::vector<Rendezvous::Pair>>{};
  };
  std::deque<Process> processes = {};

  Status runRank(Process &process, int rank) {
    const auto number = static_cast<size_t>(rank);
    const Launch launch{
        .kind = Launch::Kind::Tcp, .size = size, .rank = rank, .host = host, .port = port, .job = jobs[number]};
    process.network.meetingSeconds = seconds;
    if (secrets[number] > 0) process.network.secret.emplace()[0] = static_cast<std::byte>(secrets[number]);
    CLEAVE_RETURN_IF_ERROR(process.meet(launch, plans[number]));
    for (const std::vector<Rendezvous::Pair> &pairs : needs(rank))
      CLEAVE_RETURN_IF_ERROR(
          process.rendezvous->connect(pairs, *process.tree, *process.control, {seconds, "--preparation-timeout"}));
    return Status::ok();
  }

  const std::deque<Process> &meetAll(const std::vector<int> &ranks) {
    EXPECT_GE(sodium_init(), 0);
    std::vector<std::thread> threads;
    for (int rank : ranks)
      threads.emplace_back(
          [this, rank, &process = processes.emplace_back()] { process.outcome = runRank(process, rank); });
    for (std::thread &thread : threads) thread.join();
    return processes;
  }
};

// Both ends of a connection between two of the ranks, which meetAll() has in their order.
void expectConnected(const std::deque<Process> &processes, int lane, int a, int b) {
  const int one = processes[static_cast<size_t>(a)].rendezvous->take({lane, b}),
            other = processes[static_cast<size_t>(b)].rendezvous->take({lane, a});
  ASSERT_GE(one, 0) << "lane " << lane << ", rank " << a << " to " << b;
  ASSERT_GE(other, 0) << "lane " << lane << ", rank " << b << " to " << a;
  EXPECT_EQ(ownAddress(one).text(), peerAddress(other).text());
  ::close(one), ::close(other);
}

// Neighbours on the tree have a socket on both of its lanes, and all know the same run.
void expectMet(const std::deque<Process> &processes) {
  for (const Process &process : processes) {
    EXPECT_TRUE(process.outcome) << process.message();
    EXPECT_EQ(process.rendezvous->run(), processes[0].rendezvous->run());
  }
  if (testing::Test::HasFailure()) return;
  for (int rank = 1; rank < std::ssize(processes); ++rank)
    expectConnected(processes, Transport::healthLane, rank, parentOf(rank));
}

TEST(Rendezvous, AllMeetAmongStrangers) {
  Party party;
  std::vector<std::thread> unauthenticated;
  std::atomic<bool> over{false};
  for (int number = 0; number < 20; ++number)
    unauthenticated.emplace_back([&, number] {
      while (!over) {
        int socket = connectTo(party.port);
        if (socket < 0) return;
        std::string word = number % 4 == 0   ? "GET / HTTP/1.1\r\n\r\n"
                           : number % 4 == 1 ? std::string(1000, 'x')
                           : number % 4 == 2 ? std::string("CVLC\2\0", 6) // a handshake's beginning
                                             : "";
        (void)!::send(socket, word.data(), word.size(), MSG_NOSIGNAL);
        if (number % 2) ::usleep(20000);
        ::close(socket);
      }
    });
  const std::deque<Process> &processes = party.meetAll({0, 1, 2, 3});
  over = true;
  expectMet(processes);
  std::thread([&] { // the unauthenticated that wait for somebody who listens
    int socket = listenAt(resolve("127.0.0.1", party.port)->front());
    for (std::thread &stranger : unauthenticated) stranger.join();
    ::close(socket);
  })
      .join();
}

TEST(Rendezvous, SilentConnectionsDelayNobody) {
  Party party;
  std::vector<int> silent;
  std::thread stranger([&] {
    for (int i = 0; i < 300; ++i) silent.push_back(connectTo(party.port));
  });
  auto begin = std::chrono::steady_clock::now();
  const std::deque<Process> &processes = party.meetAll({0, 1, 2, 3});
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
  expectMet(processes);
  int socket = listenAt(resolve("127.0.0.1", party.port)->front());
  stranger.join();
  ::close(socket);
  for (int one : silent)
    if (one >= 0) ::close(one);
}

TEST(Rendezvous, AnotherSecretIsTold) {
  Party party{.seconds = 5, .secrets = {1, 1, 2, 1}};
  const std::deque<Process> &processes = party.meetAll({0, 1, 2, 3});
  EXPECT_THAT(processes[2].message(), testing::HasSubstr("rank 2 and rank 0"));
  EXPECT_THAT(processes[2].message(), testing::HasSubstr("their secrets differ"));
  EXPECT_THAT(processes[0].message(), testing::HasSubstr("rank 0 waits for rank 2 of 4"));
  EXPECT_THAT(processes[0].message(), testing::HasSubstr("their secrets differ"));
  EXPECT_THAT(processes[1].message(), testing::HasSubstr("rank 0 waits for rank 2 of 4"));
}

TEST(Rendezvous, AnotherPlanEndsAllAtOnce) {
  Party party{.seconds = 20, .plans = {"plan", "plan", "another", "plan"}};
  const std::deque<Process> &processes = party.meetAll({0, 1, 2, 3});
  for (int rank : {0, 2})
    EXPECT_THAT(processes[static_cast<size_t>(rank)].message(), testing::HasSubstr("different plans"));
  for (int rank : {1, 3}) EXPECT_FALSE(processes[static_cast<size_t>(rank)].outcome);
}

TEST(Rendezvous, ASecondProcessOfARankIsToldSo) {
  Party party{.size = 2, .seconds = 10};
  const std::deque<Process> &processes = party.meetAll({0, 1, 1});
  int refused = 0;
  for (size_t i : {1, 2}) refused += processes[i].message().find("another process has this rank") != std::string::npos;
  int lost = !processes[1].outcome + !processes[2].outcome;
  EXPECT_EQ(lost, 1);
  EXPECT_LE(refused, 1); // or nobody listened any more when it came
  EXPECT_TRUE(processes[0].outcome) << processes[0].message();
}

TEST(Rendezvous, WhoIsMissingIsTold) {
  Party party{.seconds = 1};
  const std::deque<Process> &processes = party.meetAll({0, 2});
  EXPECT_THAT(processes[0].message(), testing::HasSubstr("rank 0 waits for ranks 1, 3 of 4"));
  EXPECT_THAT(processes[1].message(), testing::HasSubstr("rank 0 waits for ranks 1, 3 of 4"));
  EXPECT_EQ(processes[0].outcome.exitStatus(), 4);
}

TEST(Rendezvous, ANameThatIsNotKnownIsTriedUntilTheDeadline) {
  Party party{.host = "no-such-host.invalid", .seconds = 1};
  auto begin = std::chrono::steady_clock::now();
  const std::deque<Process> &processes = party.meetAll({3});
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
  EXPECT_THAT(processes[0].message(), testing::HasSubstr("rank 3 cannot resolve 'no-such-host.invalid'"));
}

TEST(Rendezvous, BeyondThisHostThereIsASecret) {
  for (const char *host : {"192.0.2.1", "2001:db8::1"}) { // addresses of no machine
    Party party{.host = host, .seconds = 1, .secrets = {0, 0}};
    const std::deque<Process> &processes = party.meetAll({0, 1});
    for (const Process &process : processes) {
      EXPECT_THAT(process.message(), testing::HasSubstr("CLEAVE_SECRET"));
      EXPECT_THAT(process.message(), testing::HasSubstr("--insecure-network"));
      EXPECT_EQ(process.outcome.exitStatus(), 1);
    }
  }
}

// Of every pair its higher rank goes to the lower one; a rank that needs nobody waits with the others.
TEST(Rendezvous, RanksThatNeedEachOtherAreConnectedLater) {
  Party party;
  party.needs = [](int rank) {
    std::vector<std::vector<Rendezvous::Pair>> turns(3);
    for (int peer = 0; peer < 4; ++peer)
      if (peer != rank) turns[0].emplace_back(Transport::computeLane, peer);
    if (rank < 2) turns[0].emplace_back(Transport::exchangeLane, 1 - rank);
    if (rank >= 2) turns[2].emplace_back(Transport::transferLane, 5 - rank); // turns[1]: nobody needs anybody
    return turns;
  };
  const std::deque<Process> &processes = party.meetAll({0, 1, 2, 3});
  expectMet(processes);
  for (int a = 0; a < 4; ++a)
    for (int b = 0; b < a; ++b) expectConnected(processes, Transport::computeLane, a, b);
  expectConnected(processes, Transport::exchangeLane, 0, 1);
  expectConnected(processes, Transport::transferLane, 2, 3);
}

TEST(Rendezvous, OneSidedNeedsAreToldWhoIsMissing) {
  Party party{.size = 2, .seconds = 2};
  party.needs = [](int rank) {
    std::vector<Rendezvous::Pair> pairs;
    if (rank == 0) pairs.emplace_back(Transport::computeLane, 1);
    return std::vector<std::vector<Rendezvous::Pair>>{pairs};
  };
  const std::deque<Process> &processes = party.meetAll({0, 1});
  EXPECT_THAT(processes[0].message(), testing::HasSubstr("rank 0 waits for rank 1 of 2"));
  EXPECT_FALSE(processes[1].outcome);
}

TEST(Rendezvous, RanksOfTwoRunsNeverTrainTogether) {
  Party party{.size = 2, .seconds = 10, .jobs = {"monday", "tuesday"}};
  const std::deque<Process> &processes = party.meetAll({0, 1});
  for (const Process &process : processes) EXPECT_FALSE(process.outcome);
  EXPECT_THAT(processes[1].message(), testing::HasSubstr("do not belong together"));
}

TEST(Rendezvous, SixtyFourRanksMeet) {
  Party party{.size = 64, .seconds = 120};
  std::vector<int> ranks;
  for (int rank = 0; rank < party.size; ++rank) ranks.push_back(rank);
  expectMet(party.meetAll(ranks));
}

// Rank 3 registers at rank 0 and then does nothing: not its parent, rank 1, is named, but it.
TEST(Rendezvous, ARankThatStopsWhenItHasComeIsNamedByAll) {
  ASSERT_GE(sodium_init(), 0);
  const int port = freePort();
  const Network network{.meetingSeconds = 4};
  AbortFlag abort;
  std::vector<std::string> messages(3);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 3; ++rank)
    ranks.emplace_back([&, rank] {
      const Launch launch{.kind = Launch::Kind::Tcp, .size = 4, .rank = rank, .host = "127.0.0.1", .port = port};
      messages[static_cast<size_t>(rank)] = openTcpTransport(launch, network, "plan", abort).status().message();
    });
  std::atomic<bool> over{false};
  std::thread stopped([&] {
    Acceptor acceptor(RunSecret{}, {.rank = 3, .size = 4, .plan = digestOf("plan")});
    int socket = -1;
    acceptor.portToTell = [](int) -> Result<uint16_t> { return uint16_t{9}; };
    acceptor.onMet = [&](const Met &met) { socket = met.socket; };
    acceptor.join({.peer = 0, .lane = Transport::controlLane, .to = *resolve("127.0.0.1", port)});
    while (!over && socket < 0) (void)acceptor.turn();
    while (!over) ::usleep(10000);
    if (socket >= 0) ::close(socket);
  });
  for (std::thread &rank : ranks) rank.join();
  over = true;
  stopped.join();
  for (const std::string &message : messages) EXPECT_THAT(message, testing::HasSubstr("rank 3"));
}

TEST(Addresses, AnInterfaceIsFoundByNameAndAddress) {
  for (const char *interface : {"lo", "127.0.0.1"}) {
    Result<Address> found = addressOfInterface(interface);
    ASSERT_TRUE(found) << found.status().message();
    EXPECT_EQ(found->host(), "127.0.0.1");
    EXPECT_TRUE(found->isLoopback());
  }
  EXPECT_THAT(addressOfInterface("eth17").status().message(), testing::HasSubstr("lo (127.0.0.1)"));
  EXPECT_FALSE(addressOfInterface("203.0.113.9"));
}

} // namespace
} // namespace cleave::runtime::tcp
