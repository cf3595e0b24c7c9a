// A dumbbell for ns-3: COUNT droptail|red|red-wait|red-i-wait FROM SECONDS RATE SEED EVERY, with SACK. Prints what
// dumbbell.tcl prints of the same: bit/s that arrived, packets that came to the queue, that it dropped, and that waited on
// average, from FROM on.
#include <iostream>
#include <string>

#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

using namespace ns3;

namespace {
uint64_t taken = 0, dropped = 0;
double waited = 0, since = 0;

void Changes(uint32_t before, uint32_t) {
  const double now = Simulator::Now().GetSeconds();
  waited += before * (now - since);
  since = now;
}
void Takes(Ptr<const QueueDiscItem>) { ++taken; }
void Drops(Ptr<const QueueDiscItem>) { ++dropped; }
}  // namespace

int main(int argc, char** argv) {
  if (argc != 8) return 2;
  const unsigned count = std::stoul(argv[1]);
  const std::string queue = argv[2];
  const double from = std::stod(argv[3]), seconds = std::stod(argv[4]);
  const std::string rate = std::string(argv[5]) + "ps";
  RngSeedManager::SetSeed(std::stoul(argv[6]));
  const double every = std::stod(argv[7]) / 1000;
  Config::SetDefault("ns3::TcpL4Protocol::SocketType", TypeIdValue(TcpNewReno::GetTypeId()));
  Config::SetDefault("ns3::TcpL4Protocol::RecoveryType", TypeIdValue(TcpClassicRecovery::GetTypeId()));
  Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(1460));
  Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(10));
  Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(1));
  Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(1 << 26));
  Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(1 << 26));
  Config::SetDefault("ns3::TcpSocketBase::Timestamp", BooleanValue(false));
  Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(Seconds(1)));
  NodeContainer nodes;
  nodes.Create(3);
  PointToPointHelper fast, slow;
  fast.SetDeviceAttribute("DataRate", StringValue("10Gbps"));
  fast.SetChannelAttribute("Delay", StringValue("0ms"));
  fast.SetQueue("ns3::DropTailQueue<Packet>", "MaxSize", StringValue("100000p"));
  slow.SetDeviceAttribute("DataRate", StringValue(rate));
  slow.SetChannelAttribute("Delay", StringValue("50ms"));
  slow.SetQueue("ns3::DropTailQueue<Packet>", "MaxSize", StringValue("1p"));
  NetDeviceContainer access = fast.Install(nodes.Get(0), nodes.Get(1));
  NetDeviceContainer path = slow.Install(nodes.Get(1), nodes.Get(2));
  InternetStackHelper().Install(nodes);
  TrafficControlHelper control;
  if (queue == "droptail") {
    control.SetRootQueueDisc("ns3::FifoQueueDisc", "MaxSize", StringValue("250p"));
  } else {
    control.SetRootQueueDisc("ns3::RedQueueDisc", "MaxSize", StringValue("250p"), "MinTh", DoubleValue(50), "MaxTh",
                             DoubleValue(150), "LInterm", DoubleValue(10), "Gentle", BooleanValue(true), "Wait",
                             BooleanValue(queue.find("-wait") != std::string::npos), "QW",
                             DoubleValue(queue.find("red-i") == 0 ? 1.0 : 0.002), "MeanPktSize", UintegerValue(1500),
                             "LinkBandwidth", StringValue(rate), "LinkDelay", StringValue("50ms"));
  }
  Ptr<QueueDisc> disc = control.Install(path.Get(0)).Get(0);
  disc->TraceConnectWithoutContext("PacketsInQueue", MakeCallback(&Changes));
  disc->TraceConnectWithoutContext("Enqueue", MakeCallback(&Takes));
  disc->TraceConnectWithoutContext("Drop", MakeCallback(&Drops));
  Ipv4AddressHelper addresses;
  addresses.SetBase("10.1.1.0", "255.255.255.0");
  addresses.Assign(access);
  addresses.SetBase("10.1.2.0", "255.255.255.0");
  const Ipv4Address far = addresses.Assign(path).GetAddress(1);
  Ipv4GlobalRoutingHelper::PopulateRoutingTables();
  ApplicationContainer sinks;
  for (unsigned i = 0; i < count; ++i) {
    const uint16_t port = 5000 + i;
    sinks.Add(PacketSinkHelper("ns3::TcpSocketFactory", InetSocketAddress(Ipv4Address::GetAny(), port))
                  .Install(nodes.Get(2)));
    BulkSendHelper source("ns3::TcpSocketFactory", InetSocketAddress(far, port));
    source.Install(nodes.Get(0)).Start(Seconds(every * i));
  }
  const auto arrived = [&sinks] {
    double bytes = 0;
    for (uint32_t i = 0; i < sinks.GetN(); ++i) bytes += DynamicCast<PacketSink>(sinks.Get(i))->GetTotalRx();
    return bytes;
  };
  double bytes = 0;
  Simulator::Schedule(Seconds(from), [&] {
    bytes = arrived();
    taken = dropped = 0;
    waited = 0;
    since = from;
  });
  Simulator::Stop(Seconds(seconds));
  Simulator::Run();
  Changes(disc->GetNPackets(), 0);
  const double length = seconds - from;
  std::cout << std::fixed << (arrived() - bytes) * 8 / length << " " << taken + dropped << " " << dropped << " "
            << waited / length << std::endl;
  Simulator::Destroy();
  return 0;
}
