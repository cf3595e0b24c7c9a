# Paper 4's figure 6, TCP-c with RED-a, in ns-2 2.35 (Debian's `ns2`), with what `reproduce udtg-fig6` assumes:
# ns udtg-fig6.tcl SEED WEIGHT HOSTS. Prints Mbit/s of the 5 volume flows and of the 50 FTP flows from 15 to 40 s.
# With -1 (ns-2's rule for RED's weight) and 10000Mb: 706 and 252 with seed 1, 745 and 228 with seed 2.
lassign $argv seed weight hosts
set ns [new Simulator]
$defaultRNG seed $seed
Agent/TCP set packetSize_ 1460
Agent/TCP set windowInit_ 2
Agent/TCP set minrto_ 1.0
Agent/TCP set overhead_ 0
Queue/RED set thresh_ 4166
Queue/RED set maxthresh_ 8333
Queue/RED set q_weight_ $weight
Queue/RED set linterm_ 10
Queue/RED set gentle_ true
Queue/RED set mean_pktsize_ 1500
Queue/RED set bytes_ false
Queue/RED set queue_in_bytes_ false
Queue/RED set adaptive_ 0
set a [$ns node]; set b [$ns node]
$ns duplex-link $a $b 1000Mb 50ms RED
$ns queue-limit $a $b 16666
$ns queue-limit $b $a 100000
proc flow {i win at} {
  global ns a b tcp hosts
  set h [$ns node]; set k [$ns node]
  $ns duplex-link $h $a $hosts 0ms DropTail; $ns queue-limit $h $a 1000000
  $ns duplex-link $b $k $hosts 0ms DropTail; $ns queue-limit $b $k 1000000
  set tcp($i) [new Agent/TCP/Newreno]; $tcp($i) set window_ $win
  set sink [new Agent/TCPSink]
  $ns attach-agent $h $tcp($i); $ns attach-agent $k $sink; $ns connect $tcp($i) $sink
  set f [new Application/FTP]; $f attach-agent $tcp($i); $ns at $at "$f start"
}
for {set i 0} {$i < 5} {incr i} { flow $i 8561 0 }
for {set i 5} {$i < 55} {incr i} { flow $i 44 [expr 0.02*($i-5)] }
proc acked {from to} { global tcp; set s 0; for {set i $from} {$i<$to} {incr i} {set s [expr $s+[$tcp($i) set ack_]]}; return $s }
$ns at 15 { set volume [acked 0 5]; set ftp [acked 5 55] }
$ns at 40 {
  puts "[expr ([acked 0 5] - $volume) * 1460 * 8 / 25 / 1e6] [expr ([acked 5 55] - $ftp) * 1460 * 8 / 25 / 1e6]"
  exit 0
}
$ns run
