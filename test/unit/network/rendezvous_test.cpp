// Processes that meet, as threads over the loopback interface, among unauthenticated.
#include "runtime/engine/comm/tcp/address.h"
#include "runtime/engine/comm/tcp/rendezvous.h"
#include "runtime/engine/comm/transport.h"
#include <arpa/inet.h>
#include <gmock/gmock.h>
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

struct Process {
  std::optional<Result<Sockets>> outcome;
  std::string message() const { return outcome && !*outcome ? outcome->status().message() : ""; }
};

struct Party {
  int size = 4, port = freePort();
  std::string host = "127.0.0.1";
  double seconds = 60;
  std::vector<int> secrets = {1, 1, 1, 1};
  std::vector<std::string> plans = {"plan", "plan", "plan", "plan"};

  std::vector<Process> meetAll(const std::vector<int> &ranks) {
    EXPECT_GE(sodium_init(), 0);
    std::vector<Process> processes(ranks.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < ranks.size(); ++i)
      threads.emplace_back([&, i] {
        Launch launch{.kind = Launch::Kind::Tcp, .size = size, .rank = ranks[i], .host = host, .port = port};
        Network network{.meetingSeconds = seconds};
        auto number = static_cast<size_t>(ranks[i]);
        if (secrets[number] > 0) network.secret.emplace()[0] = static_cast<std::byte>(secrets[number]);
        processes[i].outcome.emplace(meet(launch, network, plans[number]));
      });
    for (std::thread &thread : threads) thread.join();
    return processes;
  }
};

// Every pair has a socket on every lane, and both ends are of the same connection.
void expectMet(const std::vector<Process> &processes, int size) {
  for (const Process &process : processes) ASSERT_TRUE(*process.outcome) << process.message();
  for (int lane = 0; lane < Transport::lanes; ++lane)
    for (int a = 0; a < size; ++a)
      for (int b = 0; b < a; ++b) {
        if (lane == Transport::healthLane && b != 0) continue;
        int one = (**processes[static_cast<size_t>(a)].outcome)[static_cast<size_t>(lane)][static_cast<size_t>(b)],
            other = (**processes[static_cast<size_t>(b)].outcome)[static_cast<size_t>(lane)][static_cast<size_t>(a)];
        ASSERT_GE(one, 0);
        ASSERT_GE(other, 0);
        EXPECT_EQ(ownAddress(one).text(), peerAddress(other).text());
      }
}

void closeAll(std::vector<Process> &processes) {
  for (Process &process : processes)
    if (*process.outcome)
      for (auto &lane : **process.outcome)
        for (int socket : lane)
          if (socket >= 0) ::close(socket);
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
  std::vector<Process> processes = party.meetAll({0, 1, 2, 3});
  over = true;
  expectMet(processes, 4);
  closeAll(processes);
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
  std::vector<Process> processes = party.meetAll({0, 1, 2, 3});
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
  expectMet(processes, 4);
  closeAll(processes);
  int socket = listenAt(resolve("127.0.0.1", party.port)->front());
  stranger.join();
  ::close(socket);
  for (int one : silent)
    if (one >= 0) ::close(one);
}

TEST(Rendezvous, AnotherSecretIsTold) {
  Party party{.seconds = 5, .secrets = {1, 1, 2, 1}};
  std::vector<Process> processes = party.meetAll({0, 1, 2, 3});
  EXPECT_THAT(processes[2].message(), testing::HasSubstr("rank 2 and rank 0"));
  EXPECT_THAT(processes[2].message(), testing::HasSubstr("their secrets differ"));
  EXPECT_THAT(processes[0].message(), testing::HasSubstr("rank 0 waits for rank 2 of 4"));
  EXPECT_THAT(processes[0].message(), testing::HasSubstr("their secrets differ"));
  EXPECT_THAT(processes[1].message(), testing::HasSubstr("rank 0 waits for rank 2 of 4"));
}

TEST(Rendezvous, AnotherPlanEndsAllAtOnce) {
  Party party{.seconds = 20, .plans = {"plan", "plan", "another", "plan"}};
  std::vector<Process> processes = party.meetAll({0, 1, 2, 3});
  for (int rank : {0, 2})
    EXPECT_THAT(processes[static_cast<size_t>(rank)].message(), testing::HasSubstr("different plans"));
  for (int rank : {1, 3}) EXPECT_FALSE(*processes[static_cast<size_t>(rank)].outcome);
}

TEST(Rendezvous, ASecondProcessOfARankIsToldSo) {
  Party party{.size = 2, .seconds = 10};
  std::vector<Process> processes = party.meetAll({0, 1, 1});
  int refused = 0;
  for (size_t i : {1, 2}) refused += processes[i].message().find("another process has this rank") != std::string::npos;
  int lost = !*processes[1].outcome + !*processes[2].outcome;
  EXPECT_EQ(lost, 1);
  EXPECT_LE(refused, 1); // or nobody listened any more when it came
  EXPECT_TRUE(*processes[0].outcome) << processes[0].message();
  closeAll(processes);
}

TEST(Rendezvous, WhoIsMissingIsTold) {
  Party party{.seconds = 1};
  std::vector<Process> processes = party.meetAll({0, 2});
  EXPECT_THAT(processes[0].message(), testing::HasSubstr("rank 0 waits for ranks 1, 3 of 4"));
  EXPECT_THAT(processes[1].message(), testing::HasSubstr("rank 0 waits for ranks 1, 3 of 4"));
  EXPECT_EQ(processes[0].outcome->status().exitStatus(), 4);
}

TEST(Rendezvous, ANameThatIsNotKnownIsTriedUntilTheDeadline) {
  Party party{.host = "no-such-host.invalid", .seconds = 1};
  auto begin = std::chrono::steady_clock::now();
  std::vector<Process> processes = party.meetAll({3});
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
  EXPECT_THAT(processes[0].message(), testing::HasSubstr("rank 3 cannot resolve 'no-such-host.invalid'"));
}

TEST(Rendezvous, BeyondThisHostThereIsASecret) {
  for (const char *host : {"192.0.2.1", "2001:db8::1"}) { // addresses of no machine
    Party party{.host = host, .seconds = 1, .secrets = {0, 0, 0, 0}};
    std::vector<Process> processes = party.meetAll({0, 1});
    for (const Process &process : processes) {
      EXPECT_THAT(process.message(), testing::HasSubstr("CLEAVE_SECRET"));
      EXPECT_THAT(process.message(), testing::HasSubstr("--insecure-network"));
      EXPECT_EQ(process.outcome->status().exitStatus(), 1);
    }
  }
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
