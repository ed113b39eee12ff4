"""Plots about helping: hurt animals, mistakes, broken things, gifts and fears."""

from __future__ import annotations

_DARK = """
<intro>
{h} [was afraid of|did not like] the dark. At night, {he} [could not sleep|hid under the blanket|called for {his} {p}].
| Every night, {h} was scared of the dark. {He} thought there was a monster in the {room}.
One evening, {his} friend {f} came to sleep at {h}'s house. When the light went out, they heard a [strange |]noise from the {room}.
| One night, the lights went out. It was very dark. Then {h} and {his} friend {f} heard a [soft|strange] sound from the {room}.
"[What is that|Is it a monster], {f}?" {h} [whispered|asked]. {His} [hands shook|heart went boom, boom].
| "I am scared, {f}," said {h}. {He} [closed {his} eyes|held {his} {obj} very tight].

"[Let us look|We can go and see]," said {f}. {FHe} took a small light, and {h} [held {fhis} hand|took {his} {obj}].
| {f} was [scared too|not so scared]. "We can be brave together," {fhe} said, and {fhe} [took|found] a little light.
They [walked|went] slowly to the {room}. [Step, step, step.|The floor went creak.|It was so dark.] They [opened the door|looked inside].

It was not a monster. It was only {maker}! {h} [began to laugh|laughed and laughed].
| "[Look|Oh], it is only {maker}!" said {f}. {h} [let out a big breath|started to laugh].
"[The dark is not so bad|I am not scared now]," said {h}. "It was just {maker}."
| {h} told {his} {p} about {maker} in the {room}, and {phe} laughed too.
That night, {h} slept well with {his} {obj} [next to {him}|on the bed]. {He} was not afraid of the dark [any more|now].
| From then on, {h} was brave [in the dark|at night]. When {he} heard a noise, {he} [thought of|remembered] that night and smiled.
? Things are [less scary|not so scary] when you look at them with a friend.
"""

_HURT = """
<intro>
{Day}, {h} was walking {at_place}. <weather> {He} heard a [tiny|small|sad] sound {spot1}.
| {h} [went for a walk|played] {at_place}. Then {he} saw something {spot1}.
It was a {pet}! It had hurt its leg and could not [walk|move].
| There was a {pet}. "[Oh, poor thing|Oh no]," said {h}. Its leg was hurt.

{h} ran to get {his} friend {f}. "[Come quick|We must help], {f}! The {petkind} is hurt," {he} said.
| {h} called {his} friend {f}. "We have to help the {petkind}," {he} said. "[It is all alone|It looks so sad]."
{f} [found|brought] a {color} box, and they put the {petkind} [in it|inside] to keep it safe. {h} gave it some water.
| They wrapped its leg with a [soft|clean] {color} cloth. The {petkind} was [scared|shaking], so {h} sang a [soft|little] song.
At first it would not eat. Then {h} gave it a [bit|little piece] of {treat}. [It ate it all up|It took a small bite]!
| They took it home to {his} {p}. "{P}, can you help the {petkind}?" asked {h}. "Yes," {phe} said. "It needs [food and sleep|rest]."

[Every day|Each morning], {h} and {f} [took care of|looked after] it. After {number} days, it could [walk|run] again.
| They gave it food and water for {number} days. The {petkind} got [strong|better and better].
They took it back to {place}. "[Goodbye|Bye-bye], little {petkind}," said {h}. {He} was a bit sad, but happy too.
| "It is time to go home, {petkind}," said {f}. They let it go {at_place}, {spot1}.
[One morning|The next week], the {petkind} came back to [visit them|say hello]! <happy>
| The {petkind} looked back [one time|once more], as if to say thank you. <happy>
? It [is good|feels good] to help [animals|someone who is small].
"""

_BAKE = """
<intro>
{Day}, {h} wanted to [make|bake] a {food} for {his} {p}. {His} friend {f} came to help {him}.
| It was the birthday of {his} {p}. "[I will make|Let us make] a {food}," {h} said to {his} friend {f}.
They [put|got] [flour|milk and eggs|salt and butter] and a {color} bowl on the table. {h} [mixed|stirred] and {f} [helped|counted the spoons].
| {h} [took|got] a {color} bowl and a spoon. They mixed and mixed. There was [flour|food] on {f}'s nose!
But {h} put in [too much salt|salt and not sugar]. {He} [took|had] a small taste. "[Yuck|Oh no]! This {food} is bad," {he} said.
| But they [played outside|forgot the time], and the {food} got too hot. It was all black! <sad>

"[We can|Let us] try again," said {f}. "This time we will [be careful|go slowly|watch it]."
| {h} wanted to [stop|give up]. But {f} said, "Everyone makes mistakes, {h}. We can make a new {food}."
They cleaned the {color} bowl and [started again|made a new one]. {h} [read every word|was very careful], and {f} watched the clock.
| So they made it again, step by step. [Soon|After a while] it smelled [so good|very nice].

"[Surprise|This is for you], {P}!" said {h}. {His} {p} [took|ate] a [big |]bite of the {food}. "[Yum|Mmm]! This is the best {food} ever," {phe} said.
| When {his} {p} came home, {phe} saw the {food}. "Did you make this, {h}?" {phe} asked. "Yes, with {f}!" said {h}.
They all sat [at the table|in the {room}] and ate the {food} together. <happy>
| <thanks> Then they all ate the {food} together.
{h} learned that [it is good to try again|a mistake is not so bad|it is good to be careful].
| It was a [good|very good|happy] day[.| for {h}, {f} and {his} {p}.]
"""

_SORRY = """
{h}'s {p} had a {obj}. "[Please be careful|Do not play] with my {noun}, {h}," {phe} said.
| <intro> {His} {p} had a {obj}, and {phe} loved it [very much|a lot].
{Day}, {h} took the {noun} to {place} [to show it to {his} friend {f}|with {his} friend {f} and did not ask]. "[Look|See], {f}, what a lovely {noun}!" {he} said.
| But {h} wanted to play with the {noun}. {Day}, {he} and {his} friend {f} took it to {place}.
[Splash|Oops]! The {noun} fell into the [mud|water]. Now the {obj} was [dirty|all wet].
| {h} ran too fast, and the {noun} fell. Now there was [mud|dirt] all over the {obj}.

"[What will we do|Oh no], {h}?" asked {f}. {h} was [scared|worried]. {He} hid the {noun} {spot1}.
| {h} did not know what to do. {He} put the {obj} {spot1} and went home. {He} felt [bad|sick] inside.
That evening, {his} {p} asked, "[Where is my {noun}|Did you see my {obj}], {h}?" {h} said, "[I do not know|No]."
| {h} [could not eat|could not sleep]. "I have to [tell the truth|say it]," {he} thought. "It is wrong to lie about the {noun}."
The next day, {f} said, "[Tell the truth|You should say sorry], {h}. I will [come with you|help you]."

So {h} [got|took] the {noun} and went to {his} {p}. "I am sorry, {P}. I took your {obj} to {place}," {he} said.
| {h} told {his} {p} everything. "I [made a mistake|was wrong]. I am sorry about your {noun}," {he} said, and {he} [began to cry|looked at the floor].
{His} {p} [was quiet|looked at the {noun}] for a moment. Then {phe} hugged {him}. "Thank you for telling [me|the truth]," {phe} said.
| "I am a little sad about the {noun}," said {his} {p}. "But I am glad that you told me."
They washed the {obj} together until it was [clean|good as new].
| {h} and {f} cleaned the {noun} with soap and water. Soon it was [clean again|just like before].
{h} learned to [always tell the truth|ask first|say sorry when {he} made a mistake].
"""

_SEED = """
<intro>
{Day}, {his} {p} gave {him} a [tiny|small|little] seed. "[One day|If you take care of it], it will be a {plant}," {phe} said.
| {Day}, {h} found a [tiny|little|small] seed {at_place}. "What is it, {P}?" {he} asked. "It is a seed for a {plant}," {phe} said.
{h} [made a hole|dug a hole with a spoon] {at_other} and put the seed in. {He} gave it water from a {color} cup.
| {h} put the seed in the ground {at_other}. "[Grow, little seed|Please grow big]," {he} said.
[The next day|After one day], {h} [ran|went] to look. There was [nothing|only dirt]. After {number} days, there was still nothing. <sad>
| {He} waited {number} days, but nothing [came up|grew]. "My seed [is asleep|does not like me]," said {h}.

{His} friend {f} came to see {him}. "[A seed needs time|You have to wait], {h}," {fhe} said. "[Give it water|We can water it] every day."
| "Do not dig it up!" said {his} friend {f}. "A {plant} needs [sun, water and time|time to grow]."
So each day they [took|filled] the {color} cup and [gave the seed water|went to water the seed].
| {h} and {f} went there every morning. They [sang to|talked to|watered] the seed.
? One night there was a big storm. {h} put a {color} box over the spot to keep the seed safe.

Then, one [morning|day], they saw [something green|a small green leaf]! "[Look|It is growing], {f}!" {h} shouted.
| At last, a little green [leaf|stem] came up. {h} [jumped|danced] for joy. "Hello, little plant!" {he} said.
It grew and grew. Soon it was a [big|beautiful] {plant}. {His} {p} said, "[You waited so well|What a lovely {plant}], {h}!"
| By summer, it was a {plant}, [as tall as {f}|the best one of all]. Everyone came to look at it.
{h} learned that [good things take time|it is good to wait|little things can grow big].
<end>
"""

_BROKEN = """
<own_breakable>
{Day}, {h} and {his} friend {f} [played with|looked at] the {noun} [in the {room}|on the floor]. Crash! It fell and broke.
| {Day}, {his} friend {f} [held|picked up] the {noun} in the {room}. It [slipped|fell] out of {fhis} hands. Crack! It broke.
"[My {noun} is broken|Oh no, my {obj}]!" cried {h}. <sad>
| {h} looked at the {obj}. It was in {number} pieces. <sad>
"I am sorry, {h}," said {f}. "[I want to help|We can fix it|I will help you fix it]."

They tried to fix the {noun} with [tape|string|paper], but it [fell apart|broke] again.
| First they used [tape|string]. It did not hold. The {noun} broke again.
"[Let us ask|We need] your {p}," {f} said. So they [took|carried] the {noun} to {h}'s {p}.
| {h} had an idea. "My {p} can fix things!" {he} said. They ran to {his} {p} with [all the pieces|the {noun}].
"{P}, can you fix my {noun}?" asked {h}. {His} {p} looked at it. "[We need glue|I can, if you help me]," {phe} said.

{f} held the pieces, {h} put on the glue, and they waited. [Soon|After lunch] the {obj} was [good as new|whole again].
| They worked together on the {noun}. [It took a long time|It was slow work], but at last the {obj} was fixed.
"[It has a little line|You can still see the crack]," said {f}. "I [like it|love it more] that way," said {h}. "It [shows|says] that we fixed it together."
| "[Thank you|Hooray], {P}! Thank you, {f}!" said {h}. {He} was not [mad|sad] any more.
{h} learned that [broken things can be fixed|a friend is worth more than a {noun}|it is good to ask for help].
| [After that|From then on], they were [always |very ]careful with the {obj}.
? <end>
"""

_GIFT = """
<intro>
[It was almost|Tomorrow was] the birthday of {his} friend {f}. {h} wanted to give {fhim} a [gift|nice gift], but {he} had no money.
| {h} had a good friend named {f}. {Day}, {he} heard that it was {f}'s birthday. "I need a gift," {h} thought.
{h} [saw|found] a {obj} in a shop near {place}. "[I want|Can I have] this {noun} for {f}," {he} said. But it cost {number} coins, and {h} had only one.
| {h} went to {place}. A man was selling a {obj}. {f} would love that {noun}! But it cost {number} coins. {h} had none.

"{P}, how can I get {number} coins?" {h} asked. "[You can work for them|You can help people]," said {his} {p}.
| {h} asked {his} {p} what to do. "If you help me [clean the {room}|wash the windows], I will give you some coins," {phe} said.
So {h} [washed|cleaned] the [windows|floor] and carried [wood|water|bags]. It was hard work, but {he} [did not stop|sang a song].
| {h} worked [all day|the whole day]. {He} [cleaned the {room}|swept the steps] and [fed the chickens|picked apples]. At last {he} had {number} coins!
{h} ran to [buy|get] the {obj}. {He} [put it in a box|wrapped it in {color} paper].

"Happy birthday, {f}!" said {h}. {f} opened the gift. "[Oh, a|Wow, a] {obj}!" {fhe} said. "[I love it|It is just what I wanted]!"
| {f} [looked inside|opened it]. It was the {obj}! {FHe} gave {h} a big hug. "[You are so kind|I will keep this {noun} forever]," {fhe} said.
{h} felt [so happy|warm inside]. It [was fun to get gifts, but it was even better to give|feels good to give].
<end>
"""

_GREEDY = """
<intro>
{h} loved to eat a {treat} [every day|after lunch]. {Day}, {his} {p} [made|gave {him}] a [big |]{color} basket with a {treat} for everyone.
| {Day}, {his} {p} put a [{treat}|nice {treat}] for each friend in a {color} basket. "Take this to your friend {f}, {h}," {phe} said.
{h} walked to {place} with the basket. {He} was [hungry|so hungry]. "[I will eat just one|One small bite is fine]," {he} said.
| On the way {at_place}, {h} sat down {spot1}. The basket smelled so good! {He} ate one {treat}.
Then {he} ate one more {treat}, and one more. Soon the {color} basket was [empty|all empty].
| {He} could not stop. {He} ate {number} more. Now there was nothing in the {color} basket.

{h}'s tummy hurt. "[Ouch|Oh, oh], I ate too much," {he} said. <sad>
| "[Oh no|Ow], my tummy," said {h}. {He} [lay down|sat] {spot2} and did not feel well.
{His} friend {f} came along. "[What is wrong|Are you sick], {h}?" {fhe} asked. "I ate your {treat}," said {h}. "I am [so |very ]sorry."
| {His} friend {f} found {him} there. {h} looked at the [ground|empty basket]. "{f}, this was for you, but I ate it all," {he} said. "I am sorry."
"[It is okay|Thank you for telling me]," said {f}. {FHe} [gave {him} some water|sat with {him}] until {he} felt better.

The next day, {h} [made|got] a new {treat} and [took|brought] it to {f}. This time {he} did not take [a|one] bite.
| When {h} was well again, {he} helped {his} {p} fill the {color} basket. {He} [took|carried] it to {f} and did not eat one.
{f} [broke|cut] the {treat} into two parts. "[Half for you, half for me|One for you and one for me]," {fhe} said. <happy>
{h} learned that [too much is not good|it is better to share a {treat}|one {treat} with a friend is better than {number} alone].
<end>
"""

HELP_PLOTS = [_DARK, _HURT, _BAKE, _SORRY, _SEED, _BROKEN, _GIFT, _GREEDY]
