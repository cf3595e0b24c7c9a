# A dumbbell for ns-2: COUNT sack|newreno|reno droptail|red|red-wait|red-i-wait FROM SECONDS RATE SEED
# EVERY, where each flow begins so many milliseconds later. Prints acknowledged bit/s, packets that came to the queue, that it dropped, and that waited on average, from FROM on.
lassign $argv count kind queue from seconds rate seed every
set ns [new Simulator]
$ns rtproto Static
$defaultRNG seed $seed
Agent/TCP set packetSize_ 1460
Agent/TCP set window_ 100000
Agent/TCP set windowInit_ 10
Agent/TCP set minrto_ 1.0
Agent/TCP set overhead_ 0
Queue/RED set thresh_ 50
Queue/RED set maxthresh_ 150
Queue/RED set q_weight_ 0.002
Queue/RED set linterm_ 10
Queue/RED set gentle_ true
Queue/RED set wait_ [string match *-wait $queue]
Queue/RED set mean_pktsize_ 1500
Queue/RED set bytes_ false
Queue/RED set queue_in_bytes_ false
Queue/RED set adaptive_ 0
set discipline DropTail
if {$queue ne "droptail"} { set discipline RED }
if {[string match red-i* $queue]} { Queue/RED set q_weight_ 1.0 }
set near [$ns node]
set far [$ns node]
$ns duplex-link $near $far $rate 50ms $discipline
$ns queue-limit $near $far 250
$ns queue-limit $far $near 100000
set monitor [$ns monitor-queue $near $far ""]
set packets [$monitor get-pkts-integrator]
for {set i 0} {$i < $count} {incr i} {
  if {$kind eq "sack"} {
    set tcp($i) [new Agent/TCP/Sack1]; set sink [new Agent/TCPSink/Sack1]
  } elseif {$kind eq "newreno"} {
    set tcp($i) [new Agent/TCP/Newreno]; set sink [new Agent/TCPSink]
  } else {
    set tcp($i) [new Agent/TCP/Reno]; set sink [new Agent/TCPSink]
  }
  $ns attach-agent $near $tcp($i); $ns attach-agent $far $sink; $ns connect $tcp($i) $sink
  set ftp [new Application/FTP]; $ftp attach-agent $tcp($i)
  $ns at [expr 0.001 * $every * $i] "$ftp start"
}
# Segments acknowledged, packets that came and were dropped, and packet seconds, all since the start.
proc seen {} {
  global ns monitor packets tcp count
  set acked 0
  for {set i 0} {$i < $count} {incr i} { set acked [expr $acked + [$tcp($i) set ack_]] }
  $packets newpoint [$ns now] [$monitor set pkts_]
  return [list $acked [$monitor set parrivals_] [$monitor set pdrops_] [$packets set sum_]]
}
proc finish {} {
  global before from seconds
  lassign $before acked0 came0 dropped0 waited0
  lassign [seen] acked came dropped waited
  set length [expr $seconds - $from]
  puts "[expr ($acked - $acked0) * 1460.0 * 8 / $length] [expr $came - $came0] [expr $dropped - $dropped0]\
        [expr ($waited - $waited0) / $length]"
  exit 0
}
$ns at $from {set before [seen]}
$ns at $seconds finish
$ns run
